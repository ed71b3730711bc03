package io.github.dormousekv;

import java.nio.ByteBuffer;

/** The functions of dormouse_llama.h, one native method each: src/main/c/llama.c. What the arguments are is in {@link Native}. */
final class NativeLlama {
    private NativeLlama() {}

    static native long attach(long store, byte[] library, long context, byte[] model, byte[] options, long ms, ByteBuffer cancel);

    static native void close(long llama);

    static native byte[] info(long llama);

    static native long model(long llama);

    static native void restore(long llama, Object[] prompt, int sequence, long ms, ByteBuffer cancel, long[] out);

    static native void prefill(long llama, Object[] prompt, int from, int sequence, long ms, ByteBuffer cancel);

    static native void save(long llama, Object[] prompt, int sequence, long ms, ByteBuffer cancel, long[] out);

    static native void capture(long llama, Object[] prompt, int sequence, long ms, ByteBuffer cancel);

    static native void reset(long llama, int sequence);

    static native void truncate(long llama, int sequence, int tokens);

    static native void recheck(long llama, Object[] prompt, long ms, ByteBuffer cancel);

    static native void setAdapters(long llama, long[] loaded, Object[] prompt, long ms, ByteBuffer cancel);

    static native void trim(long llama);
}
