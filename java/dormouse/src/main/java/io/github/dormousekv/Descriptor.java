package io.github.dormousekv;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/** All that makes two caches incompatible: what is not the same, is not shared. docs/c.md says what each part is. It does not change. */
public final class Descriptor {
    private static final String[] DTYPES = {"bytes", "f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1"};
    private static final int[] VALUES = {1, 1, 1, 1, 32, 32, 32, 32, 32}; // in a group
    private static final int[] BYTES = {1, 4, 2, 2, 34, 18, 20, 22, 24}; // of a group

    private final String json;
    private final List<Tensor> tensors;

    private Descriptor(Builder b) {
        tensors = Collections.unmodifiableList(new ArrayList<>(b.tensors));
        StringBuilder s = new StringBuilder("{");
        b.fields.forEach((name, value) -> s.append(Json.quoted(name)).append(':').append(value).append(','));
        s.append("\"rope\":{").append(b.rope).append("},\"groups\":[");
        for (int i = 0; i < b.groups.size(); i++) {
            s.append(i == 0 ? "" : ",").append(b.groups.get(i));
        }
        s.append("],\"tensors\":[");
        for (int i = 0; i < tensors.size(); i++) {
            s.append(i == 0 ? "" : ",").append(tensors.get(i).json());
        }
        json = s.append("]}").toString();
    }

    /** One tensor of a layer: rows of width values. */
    public static final class Tensor {
        final int layer;
        final String role;
        final String dtype;
        final int width;
        final int group;

        Tensor(int layer, String role, String dtype, int width, int group) {
            this.layer = layer;
            this.role = Library.given("role", role);
            this.dtype = Library.given("dtype", dtype);
            this.width = width;
            this.group = group;
        }

        /** The size of a row; 0 for a state of any length, and for what is refused when it is registered. */
        public long rowBytes() {
            int d = Arrays.asList(DTYPES).indexOf(dtype);
            return d < 0 || width < 0 ? 0 : (long) width / VALUES[d] * BYTES[d];
        }

        String json() {
            return "{\"layer\":" + layer + ",\"role\":" + Json.quoted(role) + ",\"dtype\":" + Json.quoted(dtype) + ",\"width\":" + width + ",\"group\":" + group + "}";
        }

        @Override
        public String toString() {
            return "layer " + layer + " " + role + " (" + dtype + ", width " + width + ")";
        }
    }

    /** weights and tokenizer are 32 hexadecimal digits: see {@link Store#hash} and {@link Store#hashFile}. */
    public static Builder of(String name, String architecture, String weights, String tokenizer) {
        return new Builder(name, architecture, weights, tokenizer);
    }

    public static final class Builder {
        private final Map<String, String> fields = new java.util.LinkedHashMap<>(); // values are JSON
        private final List<Tensor> tensors = new ArrayList<>();
        private final List<String> groups = new ArrayList<>();
        private String rope = "\"type\":\"none\"";

        private Builder(String name, String architecture, String weights, String tokenizer) {
            fields.put("name", Json.quoted("name", name));
            fields.put("architecture", Json.quoted("architecture", architecture));
            fields.put("weights", Json.quoted("weights", weights));
            fields.put("tokenizer", Json.quoted("tokenizer", tokenizer));
        }

        /** Rows are given in the order in which tensors are added. role is "K", "V" or "state"; dtype "f16", "f32", "bf16", "q8_0", … or "bytes". */
        public Builder tensor(int layer, String role, String dtype, int width) {
            return tensor(layer, role, dtype, width, 0);
        }

        /** group is the number of a group that was added, in its order. */
        public Builder tensor(int layer, String role, String dtype, int width, int group) {
            tensors.add(new Tensor(layer, role, dtype, width, group));
            return this;
        }

        /** Tensors with a row for each position. The first group is one of these; without any group, all tensors are in it. */
        public Builder all() {
            groups.add("{\"kind\":\"all\"}");
            return this;
        }

        /** Tensors of layers that look back so many rows. */
        public Builder window(int rows) {
            groups.add("{\"kind\":\"window\",\"window\":" + rows + "}");
            return this;
        }

        /** What cannot be cut, of the runtime's format. */
        public Builder state() {
            groups.add("{\"kind\":\"state\"}");
            return this;
        }

        /** How K is rotated; without it, K holds no rotation. type is "neox", "norm", …; scaling and freqFactors may be "". */
        public Builder rope(String type, int dims, float base, float scale, String scaling, String freqFactors) {
            if (!Float.isFinite(base) || !Float.isFinite(scale)) {
                throw new IllegalArgumentException("rope: base " + base + ", scale " + scale + ": expected finite numbers");
            }
            rope = "\"type\":" + Json.quoted("type", type) + ",\"dims\":" + dims + ",\"base\":" + base + ",\"scale\":" + scale + ",\"scaling\":" + Json.quoted("scaling", scaling)
                    + ",\"freq_factors\":" + Json.quoted("freqFactors", freqFactors);
            return this;
        }

        /** K and V are Hadamard-rotated before they are stored. */
        public Builder rotated() {
            fields.put("rotated", "true");
            return this;
        }

        public Builder shard(int shard, int shards) {
            fields.put("shard", Integer.toString(shard));
            fields.put("shards", Integer.toString(shards));
            return this;
        }

        /** What else ties tensors to a runtime: its version, say, for states. */
        public Builder stateFormat(String format) {
            fields.put("state_format", Json.quoted("format", format));
            return this;
        }

        public Builder blockTokens(int tokens) {
            fields.put("block_tokens", Integer.toString(tokens));
            return this;
        }

        public Descriptor build() {
            return new Descriptor(this);
        }
    }

    public List<Tensor> tensors() {
        return tensors;
    }

    /** The JSON that dormouse_register takes. */
    public String toJson() {
        return json;
    }
}
