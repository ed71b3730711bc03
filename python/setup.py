"""The library goes into the wheel: built by ../capi/build.sh, or the file that DORMOUSE_LIBRARY names."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

REPOSITORY = Path(__file__).resolve().parent.parent
SCRIPT = REPOSITORY / "capi" / "build.sh"
HELP = "set DORMOUSE_LIBRARY to a libdormouse.so, or install from a checkout of the repository on Linux, with Go and a C compiler: pip install ./python"


class WithLibrary(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:
            raise SystemExit("dormouse: an editable install has no place for the library: " + HELP)
        to = Path(self.build_lib) / "dormouse" / "libdormouse.so"
        given = os.environ.get("DORMOUSE_LIBRARY")
        if given:
            shutil.copyfile(given, to)
            return
        if not SCRIPT.exists():
            raise SystemExit("dormouse: this folder is without " + str(SCRIPT) + ": " + HELP)
        with tempfile.TemporaryDirectory() as out:
            try:
                subprocess.run(["bash", str(SCRIPT), out], check=True)
            except (OSError, subprocess.CalledProcessError) as err:
                raise SystemExit(f"dormouse: {SCRIPT} has failed ({err}): {HELP}") from err
            shutil.copyfile(Path(out) / "lib" / "libdormouse.so", to)


class WithBinary(Distribution):
    """The package lies where packages with compiled code do."""

    def has_ext_modules(self) -> bool:
        return True


class ForThisMachine(bdist_wheel):
    """A wheel for any Python 3, and one kind of machine."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


def version() -> str:
    """The release of the Go code, as PEP 440 writes it."""
    said = (REPOSITORY / "internal" / "version" / "version.go").read_text()
    return re.search(r'const Version = "(.*)"', said)[1].replace("-dev", ".dev0")


setup(version=version(), distclass=WithBinary, cmdclass={"build_py": WithLibrary, "bdist_wheel": ForThisMachine})
