package io.github.dormousekv;

import java.io.File;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** A folder with the caches of models. One process may have it open at a time, or several read-only. */
public final class Store extends Handle {
    /** How short of memory the system is. */
    public enum Pressure {
        MODERATE,
        LOW,
        CRITICAL
    }

    /** How a store is opened. What is not said is chosen. Sizes are in bytes. */
    public static final class Options {
        private final Map<String, String> fields = new LinkedHashMap<>(); // values are JSON

        private Options set(String name, String json) {
            fields.put(name, json);
            return this;
        }

        /** What all files may take. */
        public Options budget(long bytes) {
            return set("budget", Long.toString(bytes));
        }

        /** What is left free on the file system. */
        public Options minFree(long bytes) {
            return set("min_free", Long.toString(bytes));
        }

        public Options maxBlocks(long blocks) {
            return set("max_blocks", Long.toString(blocks));
        }

        /** A power cut loses nothing that was put, either. Without it, a kill loses nothing. */
        public Options durableAgainstPowerCuts() {
            return set("durability", "\"power\"");
        }

        /** How rows are stored: "raw" gives back the same bits, "q8_0" and others take less room. */
        public Options codec(String codec) {
            return set("codec", Json.quoted("codec", codec));
        }

        /** "zstd", … */
        public Options compression(String compression) {
            return set("compression", Json.quoted("compression", compression));
        }

        /** What is evicted first: "lru", "fifo" or "cost-aware". */
        public Options eviction(String policy) {
            return set("eviction", Json.quoted("policy", policy));
        }

        /** Blocks that end more than so many tokens into their prompt are evicted before all others. */
        public Options depthCap(int tokens) {
            return eviction("depth-cap").set("depth_cap", Integer.toString(tokens));
        }

        /** The shares of the budget between which the background evicts: above high it begins, and goes down to low. */
        public Options waterMarks(double low, double high) {
            return set("low_water", Double.toString(low)).set("high_water", Double.toString(high));
        }

        public Options segmentBytes(long bytes) {
            return set("segment_bytes", Long.toString(bytes));
        }

        public Options checkpointMillis(long millis) {
            return set("checkpoint_ms", Long.toString(millis));
        }

        public Options checkpointBytes(long bytes) {
            return set("checkpoint_bytes", Long.toString(bytes));
        }

        public Options readOnly() {
            return set("read_only", "true");
        }

        /** The folder may be one that others can write to. */
        public Options allowSharedDir() {
            return set("allow_shared_dir", "true");
        }

        @Override
        public String toString() {
            return Json.object(fields);
        }
    }

    private Store(long id) {
        super(id);
    }

    /** Opens, or makes, the store in a folder, as Options says when nothing is set. */
    public static Store open(File dir) {
        return open(dir, new Options());
    }

    public static Store open(File dir, Options options) {
        return open(dir, options, Call.UNLIMITED);
    }

    public static Store open(File dir, Options options, Call call) {
        return new Store(Native.open(Library.text("the folder's name", Library.given("dir", dir).getPath()), Library.text("options", Library.given("options", options).toString()), Call.ms(call), call.flag()));
    }

    @Override
    void end(long id) {
        Native.close(id);
    }

    /** Closes the store; its models are closed, too. LEASED while a match is open, BUSY while a call is at work on a {@link Llama}: the store stays open then. */
    @Override
    public void close() {
        super.close();
    }

    /** Registers a model, or finds it. */
    public Model register(Descriptor descriptor) {
        return register(descriptor, Call.UNLIMITED);
    }

    public Model register(Descriptor descriptor, Call call) {
        return new Model(Native.register(id(), Library.text("descriptor", Library.given("descriptor", descriptor).toJson()), Call.ms(call), call.flag()), descriptor);
    }

    /** Makes everything durable and gives back locks, maps and files, until resume: before a phone puts the process to sleep. */
    public void suspend() {
        suspend(Call.UNLIMITED);
    }

    public void suspend(Call call) {
        Native.suspend(id(), Call.ms(call), call.flag());
    }

    public void resume() {
        resume(Call.UNLIMITED);
    }

    public void resume(Call call) {
        Native.resume(id(), Call.ms(call), call.flag());
    }

    /** Gives back memory when the system is short of it. Nothing goes from the disk, and no later restore gets shorter by it. */
    public void pressure(Pressure level) {
        pressure(level, Call.UNLIMITED);
    }

    public void pressure(Pressure level, Call call) {
        Native.pressure(id(), Library.given("level", level).ordinal() + 1, Call.ms(call), call.flag());
    }

    /** When it returns, what was put and deleted is durable, and what was deleted is in no file. */
    public void sync() {
        sync(Call.UNLIMITED);
    }

    public void sync(Call call) {
        Native.sync(id(), Call.ms(call), call.flag());
    }

    /** Compares every byte of every file. */
    public Verified verify() {
        return verify(Call.UNLIMITED);
    }

    public Verified verify(Call call) {
        return new Verified(Json.object(Native.say(Native.VERIFY, id(), Call.ms(call), call.flag())));
    }

    public Stats stats() {
        return new Stats(Json.object(Native.say(Native.STATS, id(), 0, null)));
    }

    /** The models of the store by name, the newest version of each name first. */
    public List<ModelInfo> models() {
        return models(Call.UNLIMITED);
    }

    public List<ModelInfo> models(Call call) {
        List<ModelInfo> all = new ArrayList<>();
        Json.objects(Native.say(Native.MODELS, id(), Call.ms(call), call.flag())).forEach(m -> all.add(new ModelInfo(m)));
        return Collections.unmodifiableList(all);
    }

    /** The refs of the store by name. */
    public List<Ref> refs() {
        return refs(Call.UNLIMITED);
    }

    public List<Ref> refs(Call call) {
        List<Ref> all = new ArrayList<>();
        Json.objects(Native.say(Native.REFS, id(), Call.ms(call), call.flag())).forEach(r -> all.add(new Ref(r)));
        return Collections.unmodifiableList(all);
    }

    /** Makes everything durable that was put and deleted, and moves it from the log to the index. */
    public void checkpoint() {
        checkpoint(Call.UNLIMITED);
    }

    public void checkpoint(Call call) {
        Native.checkpoint(id(), Call.ms(call), call.flag());
    }

    /** Evicts until the store's files take so many bytes or less, and gives what they take then: more, where the rest is pinned or in use. */
    public long shrink(long bytes) {
        return shrink(bytes, Call.UNLIMITED);
    }

    public long shrink(long bytes, Call call) {
        return Native.shrink(id(), bytes, Call.ms(call), call.flag());
    }

    /** Rewrites segments of which less than half is alive. Nothing is evicted. */
    public Compacted compact() {
        return compact(0, false, Call.UNLIMITED);
    }

    /** Rewrites segments with a smaller share of live bytes; 0: one half. With all, every one to which nothing is appended. */
    public Compacted compact(double liveShare, boolean all, Call call) {
        long[] out = new long[5];
        Native.compact(id(), liveShare, all, Call.ms(call), call.flag(), out);
        return new Compacted(out);
    }

    /** Takes a name off a prefix. */
    public void deleteRef(String name) {
        deleteRef(name, Call.UNLIMITED);
    }

    public void deleteRef(String name, Call call) {
        Native.deleteRef(id(), Library.text("name", name), Call.ms(call), call.flag());
    }

    /** Deletes everything of a scope. It is durable when it returns; sync removes the bytes. */
    public Deleted deleteScope(String scope) {
        return deleteScope(scope, Call.UNLIMITED);
    }

    public Deleted deleteScope(String scope, Call call) {
        long[] out = new long[5];
        Native.deleteScope(id(), Library.text("scope", scope), Call.ms(call), call.flag(), out);
        return new Deleted(out);
    }

    /** The library's release. */
    public static String version() {
        return Native.version();
    }

    /** The hash by which weights and tokenizers are named, as 32 hexadecimal digits. */
    public static String hash(byte[] data) {
        return Native.hash(Library.given("data", data));
    }

    /** The hash of all bytes of a file. */
    public static String hashFile(File file) {
        return Native.hashFile(Library.text("the file's name", Library.given("file", file).getPath()));
    }

    /** Where the log of stores goes that are opened from now on. Null: nowhere, which is the default. */
    public static void logTo(Log log) {
        Native.setLog(log);
    }
}
