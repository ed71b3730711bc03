package io.github.dormousekv;

/** What a put did. */
public final class Put {
    /** The prompt is now stored up to here. */
    public final int tokens;
    public final long blocks;
    public final long records;
    public final long reused;
    public final long bytes;

    Put(long[] p) {
        tokens = (int) p[0];
        blocks = p[1];
        records = p[2];
        reused = p[3];
        bytes = p[4];
    }
}
