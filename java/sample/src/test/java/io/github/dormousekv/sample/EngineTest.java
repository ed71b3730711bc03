package io.github.dormousekv.sample;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertSame;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import io.github.dormousekv.Call;
import io.github.dormousekv.Cancel;
import io.github.dormousekv.DormouseException;
import io.github.dormousekv.DormouseException.Code;
import io.github.dormousekv.Llama;
import io.github.dormousekv.Model;
import io.github.dormousekv.Prompt;
import io.github.dormousekv.Put;
import io.github.dormousekv.Store;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import org.junit.Assume;
import org.junit.BeforeClass;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** The sample's engine over a real llama.cpp: killed, restored and written on, and what io.github.dormousekv.Llama refuses. */
public class EngineTest {
    private static final File ROOT = new File("../..");
    static final File SMALL = new File(ROOT, "runtimes/llamacpp/testdata/stories260K-f32.gguf");

    @Rule
    public TemporaryFolder folder = new TemporaryFolder();

    @BeforeClass
    public static void load() {
        if (System.getenv("DORMOUSE_LLAMA_LIB") == null || System.getProperty("dormouse.engine") == null) {
            System.out.println("SKIPPED: DORMOUSE_LLAMA_LIB or the property dormouse.engine is not set; Llama was not tested. tests/capi/java.sh sets both");
            Assume.assumeTrue(false);
        }
        System.load(System.getProperty("dormouse.engine"));
    }

    private static String libllama() {
        File[] found = new File(System.getenv("DORMOUSE_LLAMA_LIB")).listFiles((dir, name) -> name.matches("libllama\\.v.*\\.so"));
        assertEquals(1, found.length);
        return found[0].getPath();
    }

    static Engine engine(Store store, File model, int room) {
        return new Engine(store, model, libllama(), System.getenv("DORMOUSE_LLAMA_LIB"), room, 2);
    }

    /** Reads a prompt; as "first" saves it, says so and waits, else writes on. */
    static final class Host {
        public static void main(String[] args) throws Exception {
            System.load(System.getProperty("dormouse.engine"));
            String text = Files.readString(new File(ROOT, "examples/llamachat/prompt.txt").toPath());
            long start = System.nanoTime();
            try (Store store = Store.open(new File(args[1])); Engine e = engine(store, new File(args[2]), 2048)) {
                int[] tokens = Arrays.copyOf(e.tokens(text), 500);
                long ready = System.nanoTime();
                Engine.Turn turn = e.read(tokens);
                System.out.println(turn.getReused() + " " + (System.nanoTime() - ready) / 1_000_000 + " " + (System.nanoTime() - start) / 1_000_000);
                if (args[0].equals("first")) {
                    e.save(tokens);
                    System.out.println("saved");
                    Thread.sleep(60_000);
                }
                e.write(tokens, 24, s -> {
                    System.out.print(s);
                    return kotlin.Unit.INSTANCE;
                });
            }
        }
    }

    private List<String> host(String role, String store) throws Exception {
        Process p = new ProcessBuilder(System.getProperty("java.home") + "/bin/java", "-Ddormouse.engine=" + System.getProperty("dormouse.engine"), "-cp",
                System.getProperty("java.class.path"), Host.class.getName(), role, new File(folder.getRoot(), store).getPath(), System.getenv("DORMOUSE_LLAMA_MODEL"))
                .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        try (BufferedReader said = new BufferedReader(new InputStreamReader(p.getInputStream(), StandardCharsets.UTF_8))) {
            if (role.equals("first")) {
                List<String> got = List.of(said.readLine(), said.readLine());
                p.toHandle().destroyForcibly();
                assertEquals(128 + 9, p.waitFor());
                return got;
            }
            List<String> got = said.lines().collect(Collectors.toList());
            assertEquals(0, p.waitFor());
            return got;
        }
    }

    @Test
    public void killedAndGoesOn() throws Exception {
        List<String> want = host("never-killed", "other");
        assertEquals("saved", host("first", "s").get(1));
        List<String> got = host("second", "s");
        System.out.println("java: llama.cpp: reused, ms to the first token, ms from the beginning: never killed " + want.get(0) + ", after the kill " + got.get(0));
        assertTrue(want.get(0).startsWith("0 "));
        assertTrue(got.get(0).startsWith("499 "));
        assertEquals(want.subList(1, want.size()), got.subList(1, got.size()));
        assertTrue(got.size() > 1 && got.get(1).length() > 10);
    }

    static <T> T field(Engine e, String name, Class<T> type) throws ReflectiveOperationException {
        Field f = Engine.class.getDeclaredField(name);
        f.setAccessible(true);
        return type.cast(f.get(e));
    }

    private static Code refused(Runnable call) {
        return assertThrows(DormouseException.class, call::run).code();
    }

    @Test
    public void whatIsRefused() throws Exception {
        Call any = Call.UNLIMITED;
        try (Store store = Store.open(new File(folder.getRoot(), "s"))) {
            File model = new File(folder.getRoot(), "model.gguf");
            Files.copy(SMALL.toPath(), model.toPath()); // its memo is written beside it
            Engine e = engine(store, model, 512);
            int[] tokens = e.tokens("Once upon a time there was a little girl who had a red ball and a blue car and liked to play in the park with her dog");
            Prompt prompt = Prompt.of(tokens);
            assertEquals(0, e.read(tokens).getReused());
            Llama session = field(e, "session", Llama.class);
            Llama.Info info = session.info();
            assertTrue(info.why, info.mode.equals("rows") && info.fingerprint.length() == 32 && info.batchTokens > 0 && info.deviation <= 1);
            assertSame(Code.NOT_EMPTY, refused(() -> session.restore(prompt, 0, any)));
            int[] other = tokens.clone();
            other[3]++;
            DormouseException err = assertThrows(DormouseException.class, () -> session.save(Prompt.of(other), 0, any));
            assertSame(Code.LINEAGE, err.code());
            assertEquals(3, err.offset());
            Put put = session.save(prompt, 0, any);
            assertTrue(put.tokens == tokens.length && put.bytes > 0);
            try (Model m = session.model()) {
                assertEquals(tokens.length, m.probe(prompt).tokens);
                assertEquals(info.fingerprint, m.fingerprint());
                m.setRef("pin", prompt, new Model.RefOptions().pinned());
            }
            session.recheck(List.of(), any);
            Prompt.Adapter lora = new Prompt.Adapter(new byte[16], 1);
            assertSame(Code.IDENTITY, refused(() -> session.recheck(List.of(lora), any))); // the context has none
            assertSame(Code.LINEAGE, refused(() -> session.save(prompt.adapter(lora), 0, any))); // nor was the sequence filled with it
            session.recheck(List.of(), any);
            session.setAdapters(new long[0], List.of(), any);
            assertThrows(IllegalArgumentException.class, () -> session.setAdapters(new long[0], List.of(lora), any));
            assertSame(Code.ARGUMENT, refused(() -> session.setAdapters(new long[1], List.of(lora), any)));
            session.capture(prompt, 0, any);
            session.trim();
            session.truncate(0, 5);
            assertEquals(tokens.length - 1, e.read(tokens).getReused());
            session.reset(0);
            assertSame(Code.TOO_LONG, refused(() -> session.prefill(Prompt.of(new int[600]), tokens.length, 0, any)));
            Cancel cancel = new Cancel();
            cancel.set();
            assertSame(Code.CANCELLED, refused(() -> session.save(prompt, 0, Call.until(cancel))));

            long context = field(e, "engine", Long.class);
            assertThrows(IllegalArgumentException.class, () -> Llama.attach(store, libllama(), 0, model, new Llama.Options(), any));
            assertThrows(IllegalArgumentException.class, () -> Llama.attach(store, "libnothing.so", context, model, new Llama.Options(), any));
            assertThrows(IllegalArgumentException.class, () -> Llama.attach(store, "libc.so.6", context, model, new Llama.Options(), any));
            assertThrows(IllegalArgumentException.class, () -> new Llama.Options().with("rope_base", Double.NaN));
            assertSame(Code.IDENTITY, refused(() -> { // an adapter that the context does not have
                try (Engine second = engine(store, model, 512)) {
                    List<Prompt.Adapter> adapters = List.of(new Prompt.Adapter(new byte[] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, -1}, 0.5f));
                    Llama.attach(store, libllama(), (Long) call(second, "context"), model, new Llama.Options().adapters(adapters), any);
                }
            }));
            try (Engine second = engine(store, model, 512)) { // a context has one session, the last one
                long ctx = (Long) call(second, "context");
                Llama first = Llama.attach(store, libllama(), ctx, model, new Llama.Options(), any);
                try (Llama next = Llama.attach(store, libllama(), ctx, model, new Llama.Options(), any)) {
                    assertSame(Code.CLOSED, refused(() -> first.save(prompt, 0, any)));
                    assertSame(Code.CLOSED, refused(() -> first.setAdapters(new long[0], List.of(), any)));
                    next.recheck(List.of(), any);
                }
                first.close();
            }
            e.close();
            assertSame(Code.CLOSED, refused(() -> session.restore(prompt, 0, any)));
            assertSame(Code.ARGUMENT, refused(() -> {
                try (Engine second = engine(store, model, 512)) {
                    long ctx = (Long) call(second, "context");
                    Llama.attach(store, libllama(), ctx, model, new Llama.Options().with("rows_only", true).with("nonsense", 1), any);
                }
            }));
        }
    }

    /** A function of llama.cpp's that the engine keeps to itself. */
    static Object call(Engine e, String name) {
        try {
            java.lang.reflect.Method m = Engine.class.getDeclaredMethod(name, long.class);
            m.setAccessible(true);
            return m.invoke(e, field(e, "engine", Long.class));
        } catch (ReflectiveOperationException err) {
            throw new AssertionError(err);
        }
    }
}
