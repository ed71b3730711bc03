package io.github.dormousekv;

import java.util.Collections;
import java.util.Map;
import java.util.TreeMap;

/** Figures of a store, since it was opened but for the last three. */
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
        Map<String, Long> why = new TreeMap<>();
        ((Map<?, ?>) s.get("reasons")).forEach((reason, n) -> why.put((String) reason, (Long) n));
        reasons = Collections.unmodifiableMap(why);
    }
}
