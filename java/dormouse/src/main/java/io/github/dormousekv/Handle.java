package io.github.dormousekv;

import io.github.dormousekv.DormouseException.Code;

/** What stores, models and matches have in common: a number that the library checks, which is never used twice, and an end. */
abstract class Handle implements AutoCloseable {
    private volatile long id;

    Handle(long id) {
        this.id = id;
    }

    /** The number, for one call. If another thread closes it before the call, the library says so. */
    long id() {
        long now = id;
        if (now == 0) {
            throw new DormouseException(Code.CLOSED, "this " + getClass().getSimpleName().toLowerCase(java.util.Locale.ROOT) + " is closed");
        }
        return now;
    }

    public boolean isClosed() {
        return id == 0;
    }

    abstract void end(long id);

    /** Gives it back. Closing again does nothing. */
    @Override
    public void close() {
        long now = id;
        if (now == 0) {
            return;
        }
        try {
            end(now);
        } catch (DormouseException err) {
            if (err.code() == Code.LEASED || err.code() == Code.BUSY || err.code() == Code.CALLBACK) {
                throw err; // it is open still
            }
            id = 0;
            if (err.code() != Code.CLOSED) { // its store was closed, or another thread was faster
                throw err;
            }
        }
        id = 0;
    }
}
