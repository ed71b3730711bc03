package io.github.dormousekv;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/** The longest stored prefix of a prompt, which stays until the match is closed. */
public final class Match extends Handle {
    private final Descriptor descriptor;
    private final Restored found;

    Match(long id, Descriptor descriptor, Restored found) {
        super(id);
        this.descriptor = descriptor;
        this.found = found;
    }

    /**
     * Is called when all rows of a layer are there. tokens never grows; if it becomes smaller, all layers come again. It must not call the store: CALLBACK. What it
     * throws ends the calls to it, and is thrown when the restore is over.
     */
    public interface LayerReady {
        void ready(int layer, int tokens);
    }

    @Override
    void end(long id) {
        Native.matchClose(id);
    }

    /** What is stored, and why it is not more. */
    public Restored found() {
        return found;
    }

    /** How many tokens are stored. */
    public int tokens() {
        return found.tokens;
    }

    /** Writes the matched prefix into memory. Every byte is checked before; damage makes tokens smaller, and so do rows that end earlier: the match stays that short then, give more rows to a new one. */
    public Restored restore(List<Rows> rows) {
        return restore(rows, null, Call.UNLIMITED);
    }

    public Restored restore(List<Rows> rows, Call call) {
        return restore(rows, null, call);
    }

    /** In the order of the layers. */
    public Restored restore(List<Rows> rows, LayerReady ready, Call call) {
        List<ByteBuffer> memory = new ArrayList<>();
        long[] shape = Rows.pack(descriptor, rows, true, memory);
        long[] out = new long[3];
        Native.restore(id(), memory.toArray(new ByteBuffer[0]), shape, ready, Call.ms(call), call.flag(), out);
        return new Restored(out);
    }

    /** Model.put for a prompt that goes on from this match, which keeps the prefix meanwhile. */
    public Put extend(Prompt prompt, List<Rows> rows) {
        return extend(prompt, rows, new Model.PutOptions(), Call.UNLIMITED);
    }

    public Put extend(Prompt prompt, List<Rows> rows, Model.PutOptions options, Call call) {
        return Model.put(true, id(), descriptor, prompt, rows, options, call);
    }

    /** The size of the stored state of a tensor of a state group, 0 if there is none. */
    public long stateBytes(int tensor) {
        return Native.stateBytes(id(), Library.atLeast0("tensor", tensor));
    }
}
