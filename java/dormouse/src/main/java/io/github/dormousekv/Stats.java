package io.github.dormousekv;

import java.util.Collections;
import java.util.Map;
import java.util.TreeMap;

/** Figures of a store: what it did since it was opened, up to checkpoints, and what it holds. toString says it in a few lines. */
public final class Stats {
    public final long matches;
    public final long hits;
    /** How often each reason was given why a match or a restore covered no more. */
    public final Map<String, Long> reasons;
    public final long tokensAsked;
    public final long tokensReused;
    public final long puts;
    public final long records;
    public final long bytesPut;
    public final long bytesRestored;
    public final long evicted;
    public final long deleted;
    public final long damaged;
    public final long checkpoints;
    public final long diskBytes;
    public final long liveBytes;
    public final long blocks;
    /** What all files may take; diskBytes is what they take. */
    public final long budget;
    /** The most that all files ever took. */
    public final long diskHighWater;
    /** What is free on the file system; -1 where it does not say. */
    public final long diskFree;
    /** What of diskFree the store leaves to others. */
    public final long keptFree;
    /** Nothing is stored, whatever is evicted, because keptFree would not be left. */
    public final boolean full;
    /** Of what is deleted, and destroyed when no match can see it. */
    public final long pendingBytes;
    private final String text;

    Stats(Map<String, Object> s) {
        matches = (Long) s.get("matches");
        hits = (Long) s.get("hits");
        tokensAsked = (Long) s.get("tokens_asked");
        tokensReused = (Long) s.get("tokens_reused");
        puts = (Long) s.get("puts");
        records = (Long) s.get("records");
        bytesPut = (Long) s.get("bytes_put");
        bytesRestored = (Long) s.get("bytes_restored");
        evicted = (Long) s.get("evicted");
        deleted = (Long) s.get("deleted");
        damaged = (Long) s.get("damaged");
        checkpoints = (Long) s.get("checkpoints");
        diskBytes = (Long) s.get("disk_bytes");
        liveBytes = (Long) s.get("live_bytes");
        blocks = (Long) s.get("blocks");
        budget = (Long) s.get("budget");
        diskHighWater = (Long) s.get("disk_high_water");
        diskFree = (Long) s.get("disk_free");
        keptFree = (Long) s.get("kept_free");
        full = (Boolean) s.get("full");
        pendingBytes = (Long) s.get("pending_bytes");
        text = (String) s.get("text");
        Map<String, Long> why = new TreeMap<>();
        ((Map<?, ?>) s.get("reasons")).forEach((reason, n) -> why.put((String) reason, (Long) n));
        reasons = Collections.unmodifiableMap(why);
    }

    @Override
    public String toString() {
        return text;
    }
}
