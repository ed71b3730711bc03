package io.github.dormousekv;

import java.nio.ByteBuffer;

/** Ends calls that were given it with {@link Call#until}, soon after another thread calls {@link #set}. */
public final class Cancel {
    final ByteBuffer flag = ByteBuffer.allocateDirect(4);

    public void set() {
        Native.setFlag(flag, 1);
    }

    public void clear() {
        Native.setFlag(flag, 0);
    }

    public boolean isSet() {
        return Native.flag(flag) != 0;
    }
}
