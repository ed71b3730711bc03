package io.github.dormousekv;

import java.util.Map;

/** A model of a store, and how much of it is stored. */
public final class ModelInfo {
    public final String name;
    /** 32 hexadecimal digits. */
    public final String fingerprint;
    /** No newer version of the same name is registered. */
    public final boolean latest;
    public final long blocks;
    public final long records;
    public final long bytes;
    /** Why its descriptor cannot be read; "" if it can. */
    public final String error;

    ModelInfo(Map<?, ?> m) {
        name = (String) m.get("name");
        fingerprint = (String) m.get("fingerprint");
        latest = (Boolean) m.get("latest");
        blocks = (Long) m.get("blocks");
        records = (Long) m.get("records");
        bytes = (Long) m.get("bytes");
        error = (String) m.get("error");
    }

    @Override
    public String toString() {
        return name + " " + fingerprint;
    }
}
