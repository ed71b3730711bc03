package io.github.dormousekv;

import java.io.IOException;
import java.io.InputStream;
import java.lang.annotation.ElementType;
import java.lang.annotation.Target;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;

/** The library in the jar. Android takes it out of the app by itself. */
@Packed.NotOnAndroid
final class Packed {
    /** Tells the check of what Android has that this is not for it. */
    @Target(ElementType.TYPE)
    @interface NotOnAndroid {}

    private Packed() {}

    static void load(UnsatisfiedLinkError notInPath) {
        String machine = System.getProperty("os.name").toLowerCase(Locale.ROOT) + "-" + System.getProperty("os.arch").replace("amd64", "x86_64");
        Path dir = null;
        try {
            dir = Files.createTempDirectory("dormouse"); // only its owner can read it
            for (String name : Library.FILES) {
                try (InputStream in = Packed.class.getResourceAsStream("native/" + machine + "/" + name)) {
                    if (in == null) {
                        UnsatisfiedLinkError none = new UnsatisfiedLinkError("no libdormouse_jni.so: the property " + Library.PROPERTY + " names no folder with it, java.library.path has none ("
                                + notInPath.getMessage() + "), and the jar has none for " + machine);
                        none.initCause(notInPath);
                        throw none;
                    }
                    Files.copy(in, dir.resolve(name));
                }
            }
            Library.loadFrom(dir.toFile());
        } catch (IOException err) {
            UnsatisfiedLinkError cannot = new UnsatisfiedLinkError("the library in the jar cannot be written to a folder to load it from: " + err);
            cannot.initCause(err);
            throw cannot;
        } finally {
            remove(dir);
        }
    }

    private static void remove(Path dir) {
        if (dir == null) {
            return;
        }
        for (String name : Library.FILES) {
            dir.resolve(name).toFile().delete();
        }
        dir.toFile().delete();
    }
}
