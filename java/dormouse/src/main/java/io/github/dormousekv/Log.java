package io.github.dormousekv;

import java.nio.charset.StandardCharsets;

/** Is told what an operator should know, from threads of the library: it must not call the library, and return soon. */
public interface Log {
    int DEBUG = -4;
    int INFO = 0;
    int WARNING = 4;
    int ERROR = 8;

    void line(int level, String text);

    /** Is called by calls.c. */
    default void bytes(int level, byte[] text) {
        line(level, new String(text, StandardCharsets.UTF_8));
    }
}
