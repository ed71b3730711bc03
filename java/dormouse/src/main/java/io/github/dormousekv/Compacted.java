package io.github.dormousekv;

/** What a compaction did. */
public final class Compacted {
    /** Rewritten. */
    public final long segments;
    /** Moved. */
    public final long records;
    /** Moved. */
    public final long bytes;
    /** What all files took before it. */
    public final long before;
    /** And after it. */
    public final long after;

    Compacted(long[] c) {
        segments = c[0];
        records = c[1];
        bytes = c[2];
        before = c[3];
        after = c[4];
    }
}
