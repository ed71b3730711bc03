package io.github.dormousekv;

import java.nio.ByteBuffer;

/**
 * The functions of dormouse.h, one native method each: src/main/c/calls.c; but for dormouse_view, whose memory may be gone while it is read. Texts are UTF-8 with a zero byte at the end; ms and cancel are
 * {@link Call}'s; prompts are {@link Prompt#packed}, memory and shape {@link Rows#pack}; out takes what dormouse.h's struct has, in its order.
 */
final class Native {
    static {
        Library.load();
    }

    private Native() {}

    static native int abi();

    static native String version();

    static native String reason(int reason);

    static native void setFlag(ByteBuffer flag, int value);

    static native int flag(ByteBuffer flag);

    static native void setLog(Log log);

    static native long open(byte[] dir, byte[] options, long ms, ByteBuffer cancel);

    static native void close(long store);

    static native void modelClose(long model);

    static native void matchClose(long match);

    static native void suspend(long store, long ms, ByteBuffer cancel);

    static native void resume(long store, long ms, ByteBuffer cancel);

    static native void sync(long store, long ms, ByteBuffer cancel);

    static native void retire(long model, long ms, ByteBuffer cancel);

    static native void pressure(long store, int level, long ms, ByteBuffer cancel);

    /** What {@link #say} gives, by its number in calls.c. The first four are of a store, the next of a model. */
    static final int STATS = 0;

    static final int VERIFY = 1;
    static final int MODELS = 2;
    static final int REFS = 3;
    static final int NOTES = 4;

    static native byte[] say(int what, long handle, long ms, ByteBuffer cancel);

    static native byte[] explain(long model, Object[] prompt, int limit, long ms, ByteBuffer cancel);

    static native void checkpoint(long store, long ms, ByteBuffer cancel);

    static native long shrink(long store, long bytes, long ms, ByteBuffer cancel);

    static native void compact(long store, double liveShare, boolean all, long ms, ByteBuffer cancel, long[] out);

    static native String hash(byte[] data);

    static native String hashFile(byte[] path);

    static native long register(long store, byte[] descriptor, long ms, ByteBuffer cancel);

    static native String fingerprint(long model);

    static native void probe(long model, Object[] prompt, int limit, long ms, ByteBuffer cancel, long[] out);

    static native int prefetch(long model, Object[] prompt, int limit, long ms, ByteBuffer cancel);

    static native long match(long model, Object[] prompt, int limit, long ms, ByteBuffer cancel, long[] out);

    static native void restore(long match, ByteBuffer[] memory, long[] shape, Match.LayerReady ready, long ms, ByteBuffer cancel, long[] out);

    static native long stateBytes(long match, int tensor);

    static native void put(
            boolean extend, long handle, Object[] prompt, ByteBuffer[] memory, long[] shape, byte[] codec, byte[] compression, int keepStates, long ms, ByteBuffer cancel, long[] out);

    static native void setRef(long model, byte[] name, Object[] prefix, boolean pinned, int priority, long ttlMs, long ms, ByteBuffer cancel);

    static native void deleteRef(long store, byte[] name, long ms, ByteBuffer cancel);

    static native void delete(long model, Object[] prefix, long ms, ByteBuffer cancel, long[] out);

    static native void deleteScope(long store, byte[] scope, long ms, ByteBuffer cancel, long[] out);
}
