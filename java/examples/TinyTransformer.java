import io.github.dormousekv.Call;
import io.github.dormousekv.Descriptor;
import io.github.dormousekv.Match;
import io.github.dormousekv.Model;
import io.github.dormousekv.Prompt;
import io.github.dormousekv.Rows;
import io.github.dormousekv.Store;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;

/**
 * A tiny transformer that writes a text, is killed with SIGKILL, and goes on with the same text. Three runs write the same 96 tokens. The first has no
 * store. The second has one, and is killed in the middle. The third restores what the second stored, computes the rest, and its text has to be that of the
 * first. docs/java.md says how it is run.
 */
class TinyTransformer {
    static final int LAYERS = 4, WIDTH = 64, HEADS = 4, WORDS = 256, TOKENS = 96, EVERY = 16, KILL_AT = 70, PROMPT = 32;

    final Random random = new Random(1); // the weights are always the same
    final float[][] embedding = matrix(WORDS, WIDTH), head = matrix(WORDS, WIDTH);
    final float[][][][] layers = new float[LAYERS][][][]; // query, key, value, out, up, down
    final ByteBuffer[] cache = new ByteBuffer[2 * LAYERS]; // K and V of each layer, a row of f32 for each position
    final FloatBuffer[] values = new FloatBuffer[2 * LAYERS]; // the same memory

    TinyTransformer() {
        for (int i = 0; i < LAYERS; i++) {
            layers[i] = new float[][][] {matrix(WIDTH, WIDTH), matrix(WIDTH, WIDTH), matrix(WIDTH, WIDTH), matrix(WIDTH, WIDTH), matrix(4 * WIDTH, WIDTH), matrix(WIDTH, 4 * WIDTH)};
        }
        for (int i = 0; i < cache.length; i++) {
            cache[i] = ByteBuffer.allocateDirect(TOKENS * WIDTH * 4).order(ByteOrder.nativeOrder());
            values[i] = cache[i].asFloatBuffer();
        }
    }

    float[][] matrix(int rows, int columns) {
        float[][] m = new float[rows][columns];
        for (float[] row : m) {
            for (int j = 0; j < columns; j++) {
                row[j] = (float) (random.nextGaussian() / Math.sqrt(columns));
            }
        }
        return m;
    }

    static float[] times(float[][] m, float[] x) {
        float[] y = new float[m.length];
        for (int i = 0; i < m.length; i++) {
            for (int j = 0; j < x.length; j++) {
                y[i] += m[i][j] * x[j];
            }
        }
        return y;
    }

    static float[] norm(float[] x) {
        float sum = 1e-6f;
        for (float v : x) {
            sum += v * v / x.length;
        }
        float[] y = new float[x.length];
        for (int i = 0; i < x.length; i++) {
            y[i] = (float) (x[i] / Math.sqrt(sum));
        }
        return y;
    }

    static void add(float[] x, float[] y) {
        for (int i = 0; i < x.length; i++) {
            x[i] += y[i];
        }
    }

    float[] attention(float[] q, FloatBuffer k, FloatBuffer v, int n) {
        float[] out = new float[WIDTH];
        int dims = WIDTH / HEADS;
        for (int h = 0; h < WIDTH; h += dims) {
            float[] p = new float[n];
            float sum = 0;
            for (int t = 0; t < n; t++) {
                for (int j = h; j < h + dims; j++) {
                    p[t] += q[j] * k.get(t * WIDTH + j) / (float) Math.sqrt(dims);
                }
                sum += p[t] = (float) Math.exp(p[t]);
            }
            for (int t = 0; t < n; t++) {
                for (int j = h; j < h + dims; j++) {
                    out[j] += p[t] / sum * v.get(t * WIDTH + j);
                }
            }
        }
        return out;
    }

    /** Evaluates one token at a position, and gives the next one. */
    int step(int token, int at) {
        float[] x = new float[WIDTH];
        for (int j = 0; j < WIDTH; j++) {
            x[j] = 8 * embedding[token][j] + 0.5f * (float) Math.cos(j * (at + 1));
        }
        for (int i = 0; i < LAYERS; i++) {
            float[] h = norm(x);
            values[2 * i].duplicate().position(at * WIDTH).put(times(layers[i][1], h));
            values[2 * i + 1].duplicate().position(at * WIDTH).put(times(layers[i][2], h));
            add(x, times(layers[i][3], attention(times(layers[i][0], h), values[2 * i], values[2 * i + 1], at + 1)));
            float[] up = times(layers[i][4], norm(x));
            for (int j = 0; j < up.length; j++) {
                up[j] = Math.max(0, up[j]);
            }
            add(x, times(layers[i][5], up));
        }
        float[] scores = times(head, norm(x));
        int best = 0;
        for (int i = 0; i < scores.length; i++) {
            best = scores[i] > scores[best] ? i : best;
        }
        return best;
    }

    Descriptor descriptor() {
        byte[] seed = "java.util.Random(1)".getBytes();
        Descriptor.Builder b = Descriptor.of("tiny Java", "tiny", Store.hash(seed), Store.hash("numbers".getBytes()));
        for (int i = 0; i < LAYERS; i++) {
            b.tensor(i, "K", "f32", WIDTH).tensor(i, "V", "f32", WIDTH);
        }
        return b.build();
    }

    /** The rows of n positions: the same memory. */
    List<Rows> rows(int n) {
        List<Rows> out = new ArrayList<>();
        for (ByteBuffer b : cache) {
            out.add(Rows.of(b.duplicate().limit(n * WIDTH * 4)));
        }
        return out;
    }

    static int[] prompt() {
        int[] text = new int[PROMPT];
        Arrays.setAll(text, i -> 7 * i % WORDS);
        return text;
    }

    /** Goes on from a text, and puts the cache into the store every few tokens. */
    static void child(File dir, int[] text) throws Exception {
        TinyTransformer t = new TinyTransformer();
        try (Store store = Store.open(dir, new Store.Options().codec("raw").budget(64 << 20)); Model model = store.register(t.descriptor())) {
            int at;
            try (Match match = model.match(Prompt.of(text), text.length - 1, Call.within(5, TimeUnit.SECONDS))) {
                at = match.restore(t.rows(TOKENS)).tokens;
            }
            System.err.println("restored " + at + " of " + text.length + " tokens");
            while (text.length < TOKENS) {
                int next = t.step(text[at], at++);
                if (at == text.length) {
                    text = Arrays.copyOf(text, at + 1);
                    text[at] = next;
                    System.out.println(next);
                }
                if (at % EVERY == 0) {
                    model.put(Prompt.of(Arrays.copyOf(text, at)), t.rows(at));
                }
                Thread.sleep(10); // a larger model's time
            }
        }
    }

    /** A process that goes on from a text, and is killed when the text has so many tokens. Gives the text. */
    static int[] run(File dir, int[] text, int killAt) throws Exception {
        List<String> command = new ArrayList<>(List.of(System.getProperty("java.home") + "/bin/java", "-cp", System.getProperty("java.class.path"),
                System.getProperty("sun.java.command").split(" ")[1], dir.getPath())); // the same file
        for (int token : text) {
            command.add(Integer.toString(token));
        }
        Process p = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        try (BufferedReader said = new BufferedReader(new InputStreamReader(p.getInputStream()))) {
            for (String line = said.readLine(); line != null && text.length != killAt; line = said.readLine()) {
                text = Arrays.copyOf(text, text.length + 1);
                text[text.length - 1] = Integer.parseInt(line);
                if (text.length == killAt) {
                    p.toHandle().destroyForcibly(); // SIGKILL
                }
            }
        }
        int code = p.waitFor();
        if (code != (killAt > 0 ? 128 + 9 : 0)) {
            throw new IllegalStateException("the child ended with " + code);
        }
        return text;
    }

    public static void main(String[] args) throws Exception {
        if (args.length > 0) {
            child(new File(args[0]), Arrays.stream(args).skip(1).mapToInt(Integer::parseInt).toArray());
            return;
        }
        TinyTransformer t = new TinyTransformer();
        int[] want = Arrays.copyOf(prompt(), TOKENS);
        for (int at = 0; at < TOKENS - 1; at++) {
            int next = t.step(want[at], at);
            want[at + 1] = at + 1 < PROMPT ? want[at + 1] : next;
        }
        File dir = Files.createTempDirectory("tiny").resolve("store").toFile();
        int[] cut = run(dir, prompt(), KILL_AT);
        System.out.println("killed with " + cut.length + " tokens written");
        int[] got = run(dir, cut, 0);
        if (!Arrays.equals(want, got)) {
            throw new IllegalStateException("the text differs: " + Arrays.toString(got) + ", expected " + Arrays.toString(want));
        }
        System.out.println(got.length + " tokens, the same as without a kill: … " + Arrays.toString(Arrays.copyOfRange(got, TOKENS - 12, TOKENS)));
    }
}
