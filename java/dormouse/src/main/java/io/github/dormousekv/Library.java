package io.github.dormousekv;

import java.io.File;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * Finds libdormouse.so and libdormouse_jni.so, and loads them: from the folder that the system property {@value #PROPERTY} names; or else from
 * java.library.path, which on Android is the app's own folder; or else from the jar, by way of a folder that is gone when they are loaded.
 */
final class Library {
    static final String PROPERTY = "dormouse.library.dir";

    static final String[] FILES = {"libdormouse.so", "libdormouse_jni.so"}; // in the order in which they are loaded

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
                Packed.load(notInPath);
            }
        }
        if (Native.abi() == 0) {
            throw new UnsatisfiedLinkError("libdormouse.so is older than libdormouse_jni.so: both are to be of one release");
        }
    }

    static void loadFrom(File dir) {
        for (String name : FILES) {
            System.load(new File(dir, name).getAbsolutePath());
        }
    }

    /** An argument that must not be null. */
    static <T> T given(String what, T value) {
        if (value == null) {
            throw new NullPointerException(what + " is null");
        }
        return value;
    }

    /** A text as C takes it: UTF-8 that ends with a zero byte, and has no other. Half of a surrogate pair has none: replaced by '?', different scopes would be one. */
    static byte[] text(String what, String value) {
        if (given(what, value).indexOf('\0') >= 0) {
            throw new IllegalArgumentException(what + " has a zero byte in it: " + value);
        }
        CharBuffer chars = CharBuffer.wrap(value + '\0');
        try {
            ByteBuffer utf8 = StandardCharsets.UTF_8.newEncoder().onMalformedInput(CodingErrorAction.REPORT).onUnmappableCharacter(CodingErrorAction.REPORT).encode(chars);
            return Arrays.copyOf(utf8.array(), utf8.limit());
        } catch (CharacterCodingException e) {
            throw new IllegalArgumentException(what + " has half of a surrogate pair at index " + chars.position() + ", which UTF-8 cannot say", e);
        }
    }

    static int atLeast0(String what, int value) {
        if (value < 0) {
            throw new IllegalArgumentException(what + " is " + value + ": expected 0 or more");
        }
        return value;
    }
}
