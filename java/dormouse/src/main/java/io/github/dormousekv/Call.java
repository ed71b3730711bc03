package io.github.dormousekv;

import java.nio.ByteBuffer;
import java.util.concurrent.TimeUnit;

/** How long a call may take: until a time is over, or until a {@link Cancel} is set, or both. It can be used for any number of calls. */
public final class Call {
    /** As long as it takes. */
    public static final Call UNLIMITED = new Call(0, null);

    final long ms;
    private final Cancel cancel;

    private Call(long ms, Cancel cancel) {
        this.ms = ms;
        this.cancel = cancel;
    }

    /** The call ends with DEADLINE when the time is over, counted from its beginning. */
    public static Call within(long time, TimeUnit unit) {
        if (time <= 0) {
            throw new IllegalArgumentException("a call within " + time + " " + unit + ": expected more than 0");
        }
        return new Call(Math.max(1, unit.toMillis(time)), null);
    }

    /** The call ends with CANCELLED soon after the flag is set, or at once if it is. */
    public static Call until(Cancel cancel) {
        return UNLIMITED.orUntil(cancel);
    }

    /** The same, and it ends when the flag is set, too. */
    public Call orUntil(Cancel cancel) {
        return new Call(ms, Library.given("cancel", cancel));
    }

    static long ms(Call call) {
        return Library.given("call", call).ms;
    }

    /** The flag's memory, which the native method's argument keeps where it is. */
    ByteBuffer flag() {
        return cancel == null ? null : cancel.flag;
    }
}
