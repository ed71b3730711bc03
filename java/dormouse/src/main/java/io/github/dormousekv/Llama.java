package io.github.dormousekv;

import java.io.File;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * A context of llama.cpp that is attached to a store: what it holds goes into the store and comes back. Calls for one context must not overlap, as in
 * llama.cpp itself; where two do, the second is BUSY. Close it before the context is freed; closing the store does it, too. docs/llamacpp.md says what of
 * which models can be kept, capi/dormouse_llama.h what each method checks.
 */
public final class Llama extends Handle {
    /** What is not said is chosen. */
    public static final class Options {
        private final Map<String, String> fields = new LinkedHashMap<>(); // values are JSON

        /** A file that remembers between runs what was read from the model's file; without it every attach reads the whole model. */
        public Options memo(File file) {
            return with("memo", Library.given("file", file).getPath());
        }

        /** The LoRA adapters that are set on the context, in the order in which they apply. Without this it must have none; {@link Llama#recheck} says what comes later. */
        public Options adapters(List<Prompt.Adapter> adapters) {
            StringBuilder all = new StringBuilder("[");
            for (Prompt.Adapter a : Library.given("adapters", adapters)) {
                all.append(all.length() == 1 ? "" : ", ").append("{\"hash\": \"");
                for (byte b : Library.given("adapter", a).hash) {
                    all.append(String.format("%02x", b & 0xff));
                }
                all.append("\", \"scale\": ").append(a.scale).append('}');
            }
            fields.put("adapters", all.append(']').toString());
            return this;
        }

        /** Any other option of dormouse_llama_attach that is a text: codec, compression, weights, tokenizer, name, rope_scaling, … */
        public Options with(String name, String value) {
            fields.put(Library.given("name", name), Json.quoted(name, value));
            return this;
        }

        /** One that is a number: rope_base, rope_scale, sequence, keep_states, … */
        public Options with(String name, double value) {
            if (Double.isNaN(value) || Double.isInfinite(value)) {
                throw new IllegalArgumentException(name + " is " + value + ": expected a finite number");
            }
            fields.put(Library.given("name", name), value == Math.rint(value) && Math.abs(value) < 1e15 ? Long.toString((long) value) : Double.toString(value));
            return this;
        }

        /** One that is true or false: rows_only, opaque_only, discard_canary, … */
        public Options with(String name, boolean value) {
            fields.put(Library.given("name", name), Boolean.toString(value));
            return this;
        }

        @Override
        public String toString() {
            return Json.object(fields);
        }
    }

    /** How states of a context are kept. */
    public static final class Info {
        /** "rows" (restorable up to any token), "hybrid" or "opaque". */
        public final String mode;
        public final String why;
        public final String fingerprint;
        /** What prefill evaluates at a time. */
        public final int batchTokens;
        /** How far what the context computes was from what is stored: above 1 it is refused. */
        public final double deviation;

        Info(Map<String, Object> info) {
            mode = (String) info.get("mode");
            why = (String) info.get("why");
            fingerprint = (String) info.get("fingerprint");
            batchTokens = ((Number) info.get("batch_tokens")).intValue();
            deviation = ((Number) info.get("deviation")).doubleValue();
        }
    }

    private Llama(long id) {
        super(id);
    }

    /**
     * Finds out how states of a context can be kept, and registers its model. It evaluates a few tokens: attach before anything else is evaluated.
     *
     * @param library the library with llama.cpp's functions, which the process has loaded: "libllama.so", or a path
     * @param context the address of a llama_context, as a native method of yours gives it
     * @param model the file from which the context's model was loaded; null if options name weights and tokenizer
     */
    public static Llama attach(Store store, String library, long context, File model, Options options, Call call) {
        if (context == 0) {
            throw new IllegalArgumentException("context is 0: expected the address of a llama_context");
        }
        byte[] path = model == null ? null : Library.text("the model's name", model.getPath());
        return new Llama(NativeLlama.attach(Library.given("store", store).id(), Library.text("the library's name", library), context, path, Library.text("options", Library.given("options", options).toString()), Call.ms(call), call.flag()));
    }

    @Override
    void end(long id) {
        NativeLlama.close(id);
    }

    public Info info() {
        return new Info(Json.object(NativeLlama.info(id())));
    }

    /** The context's model: for probes, refs and deletions. Its rows are llama.cpp's. */
    public Model model() {
        return new Model(NativeLlama.model(id()), Descriptor.of("", "", "", "").build());
    }

    /** Brings the longest stored prefix into an empty sequence, at most all but the last token, which has to be evaluated for its logits. */
    public Restored restore(Prompt prompt, int sequence, Call call) {
        long[] out = new long[3];
        NativeLlama.restore(id(), Library.given("prompt", prompt).packed(), sequence, Call.ms(call), call.flag(), out);
        return new Restored(out);
    }

    /** Evaluates the tokens from a position on, in a sequence that holds those before; the logits of the last one are there then. */
    public void prefill(Prompt prompt, int from, int sequence, Call call) {
        NativeLlama.prefill(id(), Library.given("prompt", prompt).packed(), Library.atLeast0("from", from), sequence, Call.ms(call), call.flag());
    }

    /** Stores what a sequence holds of a prompt. It may hold more. */
    public Put save(Prompt prompt, int sequence, Call call) {
        long[] out = new long[5];
        NativeLlama.save(id(), Library.given("prompt", prompt).packed(), sequence, Call.ms(call), call.flag(), out);
        return new Put(out);
    }

    /** For a loop of your own around llama_decode, after every batch of at most info().batchTokens: copies what llama.cpp is about to forget. */
    public void capture(Prompt prompt, int sequence, Call call) {
        NativeLlama.capture(id(), Library.given("prompt", prompt).packed(), sequence, Call.ms(call), call.flag());
    }

    /** Says that you emptied a sequence and filled it without the session. Not for shifted positions: those must never be saved. */
    public void reset(int sequence) {
        NativeLlama.reset(id(), sequence);
    }

    /**
     * Says that you removed the positions behind so many tokens, before you evaluate others there. In a sliding-window model call it whenever you removed
     * positions, whatever you evaluate there, also the same tokens: {@link DormouseException.Code#LINEAGE} says that the rows of the window before them are not
     * there any more, or were not restored: empty the sequence and restore. What is evaluated there is then refused by a save, which without this call may not
     * see it.
     */
    public void truncate(int sequence, int tokens) {
        NativeLlama.truncate(id(), sequence, Library.atLeast0("tokens", tokens));
    }

    /** Says which LoRA adapters the context has now, after llama_set_adapters_lora, and compares what it computes. Prompts name the same ones. */
    public void recheck(List<Prompt.Adapter> adapters, Call call) {
        Object[] packed = Prompt.of().adapters(Library.given("adapters", adapters)).packed();
        NativeLlama.recheck(id(), packed, Call.ms(call), call.flag());
    }

    /**
     * Sets the context's LoRA adapters, in place of all that were set, and compares what it computes: a program that sets them in no other way cannot forget to say
     * so. Prompts name the same ones.
     *
     * @param loaded the addresses of the llama_adapter_lora, one for each
     * @param adapters what they are
     */
    public void setAdapters(long[] loaded, List<Prompt.Adapter> adapters, Call call) {
        if (Library.given("loaded", loaded).length != Library.given("adapters", adapters).size()) {
            throw new IllegalArgumentException(loaded.length + " adapters are loaded, " + adapters.size() + " are said");
        }
        NativeLlama.setAdapters(id(), loaded.clone(), Prompt.of().adapters(adapters).packed(), Call.ms(call), call.flag());
    }

    /** Gives back memory that is kept between calls, and captured rows that were not saved. */
    public void trim() {
        NativeLlama.trim(id());
    }
}
