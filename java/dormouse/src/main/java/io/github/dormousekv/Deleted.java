package io.github.dormousekv;

/** What a deletion took. */
public final class Deleted {
    public final long blocks;
    public final long records;
    public final long refs;
    public final long sessions;
    public final long bytes;

    Deleted(long[] d) {
        blocks = d[0];
        records = d[1];
        refs = d[2];
        sessions = d[3];
        bytes = d[4];
    }
}
