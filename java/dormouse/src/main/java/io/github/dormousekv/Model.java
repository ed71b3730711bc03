package io.github.dormousekv;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;

/** A model of a store. Rows are given as one entry a tensor of the descriptor, in its order; null leaves a tensor out. */
public final class Model extends Handle {
    private final Descriptor descriptor;

    Model(long id, Descriptor descriptor) {
        super(id);
        this.descriptor = descriptor;
    }

    /** How a put stores rows. What is not said is as the store was opened. */
    public static final class PutOptions {
        private String codec;
        private String compression;
        private int keepStates;

        public PutOptions codec(String codec) {
            this.codec = codec;
            return this;
        }

        public PutOptions compression(String compression) {
            this.compression = compression;
            return this;
        }

        /** Of models with states: how many stay on the way of this prompt; 0: all. */
        public PutOptions keepStates(int states) {
            keepStates = Library.atLeast0("keepStates", states);
            return this;
        }
    }

    /** How a name holds on to a prefix. */
    public static final class RefOptions {
        private boolean pinned;
        private int priority;
        private long ttlMs;

        /** It is never evicted. */
        public RefOptions pinned() {
            pinned = true;
            return this;
        }

        /** 0 to 254: it is evicted after everything of a lower one. */
        public RefOptions priority(int priority) {
            this.priority = priority;
            return this;
        }

        /** The name goes when the time is over. */
        public RefOptions ttl(long time, TimeUnit unit) {
            if (time <= 0) {
                throw new IllegalArgumentException("a ttl of " + time + " " + unit + ": expected more than 0");
            }
            ttlMs = Math.max(1, unit.toMillis(time));
            return this;
        }
    }

    @Override
    void end(long id) {
        Native.modelClose(id);
    }

    public Descriptor descriptor() {
        return descriptor;
    }

    /** 32 hexadecimal digits. */
    public String fingerprint() {
        return Native.fingerprint(id());
    }

    /** Deletes everything of this model. */
    public void retire() {
        retire(Call.UNLIMITED);
    }

    public void retire(Call call) {
        Native.retire(id(), Call.ms(call), call.flag());
    }

    /** How many leading tokens are stored, without a lease or a trace. */
    public Restored probe(Prompt prompt) {
        return probe(prompt, Library.given("prompt", prompt).length(), Call.UNLIMITED);
    }

    /** Of at most limit tokens. */
    public Restored probe(Prompt prompt, int limit, Call call) {
        long[] out = new long[3];
        Native.probe(id(), Library.given("prompt", prompt).packed(), Library.atLeast0("limit", limit), Call.ms(call), call.flag(), out);
        return new Restored(out);
    }

    /** Says why a prompt would, or would not, be reused. It reads every stored byte of the prompt. */
    public Explanation explain(Prompt prompt) {
        return explain(prompt, Library.given("prompt", prompt).length(), Call.UNLIMITED);
    }

    /** Of at most limit tokens. */
    public Explanation explain(Prompt prompt, int limit, Call call) {
        return new Explanation(Json.object(Native.explain(id(), Library.given("prompt", prompt).packed(), Library.atLeast0("limit", limit), Call.ms(call), call.flag())));
    }

    /** The model's notes by name: what a runtime keeps with it. */
    public Map<String, byte[]> notes() {
        return notes(Call.UNLIMITED);
    }

    public Map<String, byte[]> notes(Call call) {
        Map<String, byte[]> all = new TreeMap<>();
        for (Map<?, ?> n : Json.objects(Native.say(Native.NOTES, id(), Call.ms(call), call.flag()))) {
            all.put((String) n.get("name"), Json.bytes((String) n.get("value")));
        }
        return all;
    }

    /** Reads the stored prefix ahead, so that a restore soon after finds it in memory. Gives its tokens. */
    public int prefetch(Prompt prompt) {
        return prefetch(prompt, Library.given("prompt", prompt).length(), Call.UNLIMITED);
    }

    public int prefetch(Prompt prompt, int limit, Call call) {
        return Native.prefetch(id(), Library.given("prompt", prompt).packed(), Library.atLeast0("limit", limit), Call.ms(call), call.flag());
    }

    /** Finds the longest stored prefix, and holds on to it until the match is closed. */
    public Match match(Prompt prompt) {
        return match(prompt, Library.given("prompt", prompt).length());
    }

    /** Of at most limit tokens: a runtime that needs to evaluate the last one gives prompt.length() - 1. */
    public Match match(Prompt prompt, int limit) {
        return match(prompt, limit, Call.UNLIMITED);
    }

    public Match match(Prompt prompt, int limit, Call call) {
        long[] out = new long[3];
        long match = Native.match(id(), Library.given("prompt", prompt).packed(), Library.atLeast0("limit", limit), Call.ms(call), call.flag(), out);
        return new Match(match, descriptor, new Restored(out));
    }

    /** Stores rows of a prompt: of any positions, if all before them are stored or given. */
    public Put put(Prompt prompt, List<Rows> rows) {
        return put(prompt, rows, new PutOptions(), Call.UNLIMITED);
    }

    public Put put(Prompt prompt, List<Rows> rows, PutOptions options, Call call) {
        return put(false, id(), descriptor, prompt, rows, options, call);
    }

    static Put put(boolean extend, long id, Descriptor descriptor, Prompt prompt, List<Rows> rows, PutOptions options, Call call) {
        List<ByteBuffer> memory = new ArrayList<>();
        long[] shape = Rows.pack(descriptor, rows, false, memory);
        Library.given("options", options);
        byte[] codec = options.codec == null ? null : Library.text("codec", options.codec);
        byte[] compression = options.compression == null ? null : Library.text("compression", options.compression);
        long[] out = new long[5];
        Native.put(extend, id, Library.given("prompt", prompt).packed(), memory.toArray(new ByteBuffer[0]), shape, codec, compression, options.keepStates, Call.ms(call), call.flag(), out);
        return new Put(out);
    }

    /** Puts a name on a stored prefix: a pin, or a bookmark. */
    public void setRef(String name, Prompt prefix, RefOptions options) {
        setRef(name, prefix, options, Call.UNLIMITED);
    }

    public void setRef(String name, Prompt prefix, RefOptions options, Call call) {
        Library.given("options", options);
        Native.setRef(id(), Library.text("name", name), Library.given("prefix", prefix).packed(), options.pinned, options.priority, options.ttlMs, Call.ms(call), call.flag());
    }

    /** Deletes a prefix and everything that goes on from it. It is durable when it returns; Store.sync removes the bytes. */
    public Deleted delete(Prompt prefix) {
        return delete(prefix, Call.UNLIMITED);
    }

    public Deleted delete(Prompt prefix, Call call) {
        long[] out = new long[5];
        Native.delete(id(), Library.given("prefix", prefix).packed(), Call.ms(call), call.flag(), out);
        return new Deleted(out);
    }
}
