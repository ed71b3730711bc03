package io.github.dormousekv;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;

/** The door of Java to a store's rows, for tests/capi/times: what its rows.go says. Argument: the store's folder. */
final class RowsDoor {
    private static final int TOKENS = 2048;
    private static final int LAYERS = 28;
    private static final int WIDTH = 128;

    private RowsDoor() {}

    private static double now() {
        return System.nanoTime() / 1e6;
    }

    public static void main(String[] args) throws Exception {
        Descriptor.Builder b = Descriptor.of("rows", "rows", "0".repeat(31) + "1", "0".repeat(31) + "2");
        int each = TOKENS * 2 * WIDTH;
        ByteBuffer all = ByteBuffer.allocateDirect(2 * LAYERS * each + 4096).alignedSlice(4096).limit(2 * LAYERS * each);
        List<ByteBuffer> memory = new ArrayList<>();
        for (int layer = 0; layer < LAYERS; layer++) {
            b.tensor(layer, "K", "f16", WIDTH).tensor(layer, "V", "f16", WIDTH);
            for (int i = 2 * layer; i < 2 * layer + 2; i++) {
                memory.add(all.duplicate().limit((i + 1) * each).position(i * each));
            }
        }
        Descriptor descriptor = b.build();
        List<Rows> rows = Toy.given(memory);
        int[] tokens = new int[TOKENS];
        Arrays.setAll(tokens, i -> i);
        Prompt prompt = Prompt.of(tokens);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        while (in.readLine() != null) {
            double start = now();
            double opened;
            double first = 0;
            int reused = 0;
            List<String> restores = new ArrayList<>();
            try (Store store = Store.open(new File(args[0])); Model model = store.register(descriptor)) {
                opened = now();
                for (int i = 0; i < 5; i++) {
                    double begin = now();
                    try (Match match = model.match(prompt)) {
                        reused = match.restore(rows).tokens;
                        double end = now();
                        restores.add(Double.toString(end - begin));
                        first = i == 0 ? end - start : first;
                    }
                }
            }
            int best = 0;
            for (int i = 0; i < all.limit(); i += 4096) {
                best = 31 * best + (all.get(i) & 0xff);
            }
            System.out.println(String.format(Locale.ROOT, "{\"reused\":%d,\"best\":%d,\"open\":%f,\"attach\":0,\"first\":%f,\"restore\":[%s]}", reused, best, opened - start, first,
                    String.join(",", restores)));
        }
    }
}
