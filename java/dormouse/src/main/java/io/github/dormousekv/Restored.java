package io.github.dormousekv;

/** What a match or a restore covers. */
public final class Restored {
    /** Usable ones; every row beyond is zero. */
    public final int tokens;
    /** Why there are not more: "complete", "diverged", "nothing stored", … */
    public final String reason;
    /** The position that the reason is about. */
    public final int reasonAt;

    Restored(long[] r) {
        tokens = (int) r[0];
        reason = Native.reason((int) r[1]);
        reasonAt = (int) r[2];
    }

    @Override
    public String toString() {
        return tokens + " tokens: " + reason;
    }
}
