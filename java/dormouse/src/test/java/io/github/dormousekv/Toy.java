package io.github.dormousekv;

import java.io.File;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/** A small model, and rows that follow from the tokens before them. */
final class Toy {
    static final int LAYERS = 2;
    static final int WIDTH = 64;
    static final int ROW = 2 * WIDTH;
    static final Descriptor MODEL = model();

    private Toy() {}

    private static Descriptor model() {
        Descriptor.Builder b = Descriptor.of("toy", "toy", "00112233445566778899aabbccddeeff", "ffeeddccbbaa99887766554433221100");
        for (int layer = 0; layer < LAYERS; layer++) {
            b.tensor(layer, "K", "f16", WIDTH).tensor(layer, "V", "f16", WIDTH);
        }
        return b.build();
    }

    /** With room for all that processes have reserved that were killed. */
    static Store open(File dir) {
        return Store.open(dir, new Store.Options().codec("raw").budget(2L << 30).minFree(-1));
    }

    static int[] tokens(int n, int seed) {
        int[] out = new int[n];
        for (int i = 0; i < n; i++) {
            out[i] = (i * 7 + seed * 31 + (i > 100 ? seed : 0)) % 1000;
        }
        return out;
    }

    /** f16 values between 1 and 2. */
    static List<ByteBuffer> rows(int[] tokens) {
        List<ByteBuffer> out = empty(tokens.length);
        for (int t = 0; t < out.size(); t++) {
            int h = 0x811c9dc5 ^ t;
            ByteBuffer b = out.get(t);
            for (int token : tokens) {
                h = (h ^ token) * 16777619;
                int x = h;
                for (int j = 0; j < WIDTH; j++) {
                    x = x * 1664525 + 1013904223;
                    b.put((byte) (x >>> 24)).put((byte) 0x3c);
                }
            }
            b.flip();
        }
        return out;
    }

    static List<ByteBuffer> empty(int n) {
        List<ByteBuffer> out = new ArrayList<>();
        for (int t = 0; t < 2 * LAYERS; t++) {
            out.add(ByteBuffer.allocateDirect(n * ROW));
        }
        return out;
    }

    static List<Rows> given(List<ByteBuffer> memory) {
        List<Rows> out = new ArrayList<>();
        memory.forEach(b -> out.add(Rows.of(b)));
        return out;
    }

    static Put put(Model model, int[] tokens) {
        return model.put(Prompt.of(tokens), given(rows(tokens)));
    }

    /** How many tokens of a prompt come back, each byte as it was put. */
    static int restored(Model model, int[] tokens) {
        return restored(model, tokens, Prompt.of(tokens));
    }

    static int restored(Model model, int[] tokens, Prompt prompt) {
        List<ByteBuffer> got = empty(tokens.length);
        try (Match match = model.match(prompt)) {
            int n = match.restore(given(got)).tokens;
            List<ByteBuffer> want = rows(tokens);
            for (int t = 0; t < got.size(); t++) {
                if (!got.get(t).limit(n * ROW).equals(want.get(t).limit(n * ROW))) {
                    throw new AssertionError("wrong rows of tensor " + t);
                }
            }
            return n;
        }
    }
}
