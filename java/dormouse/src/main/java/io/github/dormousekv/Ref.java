package io.github.dormousekv;

import java.util.Map;

/** A name on a prefix. Times are milliseconds since 1970; 0: never, or not known. */
public final class Ref {
    public final String name;
    /** The model's fingerprint. */
    public final String model;
    /** Length of the prefix. */
    public final int tokens;
    public final boolean stored;
    public final boolean pinned;
    public final int priority;
    public final long setMillis;
    public final long expiresMillis;
    public final long usedMillis;

    Ref(Map<?, ?> r) {
        name = (String) r.get("name");
        model = (String) r.get("model");
        tokens = ((Long) r.get("tokens")).intValue();
        stored = (Boolean) r.get("stored");
        pinned = (Boolean) r.get("pinned");
        priority = ((Long) r.get("priority")).intValue();
        setMillis = (Long) r.get("set_ms");
        expiresMillis = (Long) r.get("expires_ms");
        usedMillis = (Long) r.get("used_ms");
    }

    @Override
    public String toString() {
        return name + ": " + tokens + " tokens";
    }
}
