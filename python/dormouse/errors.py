"""What calls raise. Each class stands for one status of dormouse.h."""

from __future__ import annotations


class DormouseError(Exception):
    """A call failed. After damage on disk, file and offset say where."""

    status: int
    file: str | None
    offset: int | None

    def __init__(self, message: str, status: int = 99, file: str | None = None, offset: int | None = None) -> None:
        super().__init__(message)
        self.status, self.file, self.offset = status, file, offset

    def __reduce__(self) -> tuple[type[DormouseError], tuple[str, int, str | None, int | None]]:
        return type(self), (str(self), self.status, self.file, self.offset)


class BadArgument(DormouseError, ValueError):
    """The library refused an option or an argument."""


class Closed(DormouseError):
    """The store, model or match was closed."""


class Forked(DormouseError):
    """This process was forked from one that uses the library."""


class SecondCopy(DormouseError):
    """Another copy of the library is in this process."""


class Cancelled(DormouseError):
    """The call's Cancel was set."""


class DeadlineExceeded(DormouseError, TimeoutError):
    """The call's timeout is over."""


class Corrupt(DormouseError):
    """Damage on disk, at offset in file. Of index.db: make the call again, it waits for a new index."""


class NoSpace(DormouseError):
    """The budget, or the disk, is full, and nothing more can be evicted."""


class Poisoned(DormouseError):
    """An fsync has failed: close the store and open it again."""


class Locked(DormouseError):
    """The store is open already; the message names the process."""


class Suspended(DormouseError):
    """The store is between suspend and resume."""


class ReadOnly(DormouseError):
    """The store was opened read-only."""


class Leased(DormouseError):
    """The store was to be closed while a match is open."""


class NotStored(DormouseError):
    """A prefix that the call needs is not in the store."""


class NotFound(DormouseError):
    """There is no ref, or model, of that name."""


class Retired(DormouseError):
    """The model was retired."""


class Limit(DormouseError):
    """Too large, or too many."""


class NotDestroyed(DormouseError):
    """All is done, but some deleted bytes could not be destroyed yet."""


class BadPrompt(DormouseError, ValueError):
    """The prompt contradicts itself."""


class BadRows(DormouseError, ValueError):
    """Rows do not fit the model's tensors."""


class BadDescriptor(DormouseError, ValueError):
    """The model's descriptor is refused."""


class Foreign(DormouseError):
    """The folder, or a file in it, is not the store's, or can be written to by others."""


class Version(DormouseError):
    """A store of another version of the format."""


class Refused(DormouseError):
    """States of this llama.cpp context cannot be kept safely, or its library lacks a function."""


class NotTheModel(DormouseError):
    """The llama.cpp context is not the model, or has not the adapters, that it is said to have."""


class NotEmpty(DormouseError):
    """The sequence has tokens, and a restore needs an empty one."""


class WrongPositions(DormouseError):
    """What the sequence holds does not fit the prompt, or is not there."""


class WrongLineage(DormouseError):
    """The sequence cannot hold what it is said to hold, from position offset on."""


class BadState(DormouseError):
    """llama.cpp did not hand out or accept a state as it should."""


class TooLong(DormouseError):
    """The prompt is longer than the llama.cpp context."""


class DecodeFailed(DormouseError):
    """llama_decode returned another number than 0."""


class Busy(DormouseError):
    """Another call is at work on this llama.cpp context."""


class InCallback(DormouseError):
    """A callback (of restore_layers, of log_to) called the library, which waits for it."""


class Denied(DormouseError, PermissionError):
    """The system does not let this process read or write there: permissions, a read-only file system."""


HANDLE, FORKED, BUFFER = 2, 3, 25

BY_STATUS: dict[int, type[DormouseError]] = {
    1: BadArgument, HANDLE: Closed, FORKED: Forked, 4: SecondCopy, 5: Cancelled, 6: DeadlineExceeded, 7: Corrupt, 8: NoSpace, 9: Poisoned,
    10: Locked, 11: Suspended, 12: Closed, 13: ReadOnly, 14: Leased, 15: NotStored, 16: NotFound, 17: Retired, 18: Limit, 19: NotDestroyed,
    20: BadPrompt, 21: BadRows, 22: BadDescriptor, 23: Foreign, 24: Version, 26: Refused, 27: NotTheModel, 28: NotEmpty, 29: WrongPositions, 30: WrongLineage, 31: BadState,
    32: TooLong, 33: DecodeFailed, 34: Busy, 35: InCallback, 36: Denied,
}  # fmt: skip

FORKED_HELP = (
    "this process was forked from one that uses Dormouse, and the library does not run in it. Start workers with "
    'multiprocessing.get_context("spawn"), or with os.fork before the first store is opened, and open the store in one process only'
)
