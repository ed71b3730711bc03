package io.github.dormousekv;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;

/**
 * Finds libdormouse.so and libdormouse_jni.so, and loads them: from the folder that the system property {@value #PROPERTY} names; or else from
 * java.library.path, which on Android is the app's own folder; or else from the jar, by way of a folder that is gone when they are loaded.
 */
final class Library {
    static final String PROPERTY = "dormouse.library.dir";

    private static final String[] FILES = {"libdormouse.so", "libdormouse_jni.so"}; // in the order in which they are loaded

    private Library() {}

    static synchronized void load() {
        String dir = System.getProperty(PROPERTY);
        if (dir != null) {
            loadFrom(new File(dir));
        } else {
            try {
                System.loadLibrary("dormouse");
                System.loadLibrary("dormouse_jni");
            } catch (UnsatisfiedLinkError notInPath) {
                loadFromJar(notInPath);
            }
        }
        if (Native.abi() == 0) {
            throw new UnsatisfiedLinkError("libdormouse.so is older than libdormouse_jni.so: both are to be of one release");
        }
    }

    private static void loadFrom(File dir) {
        for (String name : FILES) {
            System.load(new File(dir, name).getAbsolutePath());
        }
    }

    private static void loadFromJar(UnsatisfiedLinkError notInPath) {
        String machine = System.getProperty("os.name").toLowerCase(Locale.ROOT) + "-" + System.getProperty("os.arch").replace("amd64", "x86_64");
        Path dir = null;
        try {
            dir = Files.createTempDirectory("dormouse"); // only its owner can read it
            for (String name : FILES) {
                try (InputStream in = Library.class.getResourceAsStream("native/" + machine + "/" + name)) {
                    if (in == null) {
                        UnsatisfiedLinkError none = new UnsatisfiedLinkError(
                                "no libdormouse_jni.so: none is in the folder that the property " + PROPERTY + " names, none in java.library.path ("
                                        + notInPath.getMessage() + "), and the jar has none for " + machine);
                        none.initCause(notInPath);
                        throw none;
                    }
                    Files.copy(in, dir.resolve(name));
                }
            }
            loadFrom(dir.toFile());
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
        for (String name : FILES) {
            dir.resolve(name).toFile().delete();
        }
        dir.toFile().delete();
    }

    /** A text as C takes it: UTF-8 that ends with a zero byte, and has no other. */
    static byte[] text(String what, String value) {
        if (value.indexOf('\0') >= 0) {
            throw new IllegalArgumentException(what + " has a zero byte in it: " + value);
        }
        return (value + '\0').getBytes(StandardCharsets.UTF_8);
    }

    static int atLeast0(String what, int value) {
        if (value < 0) {
            throw new IllegalArgumentException(what + " is " + value + ": expected 0 or more");
        }
        return value;
    }
}
