package io.github.dormousekv;

import static io.github.dormousekv.Toy.LAYERS;
import static io.github.dormousekv.Toy.ROW;
import static io.github.dormousekv.Toy.WIDTH;
import static io.github.dormousekv.Toy.given;
import static io.github.dormousekv.Toy.tokens;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertSame;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import io.github.dormousekv.DormouseException.Code;
import java.io.File;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import org.junit.After;
import org.junit.Before;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** Prompts and rows: what goes in comes out, from any memory that C can read. */
public class RoundTest {
    static final int N = 300;

    @Rule
    public TemporaryFolder folder = new TemporaryFolder();

    private Store store;
    private Model model;

    @Before
    public void open() {
        store = Toy.open(new File(folder.getRoot(), "s"));
        model = store.register(Toy.MODEL);
    }

    @After
    public void close() {
        store.close();
    }

    @Test
    public void whatIsPutIsRestored() {
        int[] tokens = tokens(N, 1);
        Put put = Toy.put(model, tokens);
        assertEquals(N, put.tokens);
        assertTrue(put.blocks > 0 && put.bytes > 0);
        assertEquals(N, Toy.restored(model, tokens));
        assertEquals(N, model.probe(Prompt.of(tokens)).tokens);
        assertEquals(N, model.prefetch(Prompt.of(tokens)));
        assertEquals("0 tokens: nothing stored", model.probe(Prompt.of(new int[N])).toString());
        Stats stats = store.stats();
        assertTrue(stats.puts == 1 && stats.hits == 1 && stats.blocks > 0 && stats.reasons.get("complete") > 0);
    }

    @Test
    public void limits() {
        int[] tokens = tokens(N, 1);
        Toy.put(model, tokens);
        try (Match match = model.match(Prompt.of(tokens), N - 1)) {
            assertEquals(N - 1 + " tokens: complete", match.found().toString());
        }
        assertEquals(100, model.probe(Prompt.of(tokens), 100, Call.UNLIMITED).tokens);
        Prompt scoped = Prompt.of(tokens).scope("a", 64).span(new Prompt.Span(70, 5, new byte[16]));
        try (Match match = model.match(scoped, 0)) { // of a prompt of one token, all but the last
            assertEquals(0, match.tokens());
            assertEquals(N, match.extend(scoped, given(Toy.rows(tokens))).tokens);
        }
        model.match(Prompt.of()).close();
        assertThrows(IllegalArgumentException.class, () -> model.match(Prompt.of(tokens), -1));
    }

    private interface Layout {
        /** Rows of a tensor over memory, and where value j of row i lies in it. */
        Rows rows(ByteBuffer memory, int tensor);
    }

    /** Puts from memory that is laid out so, and restores into such memory. at is where value j of row i of tensor t lies. */
    private void layout(int bytes, Layout layout, Place at) {
        int[] tokens = tokens(N, 1);
        List<ByteBuffer> values = Toy.rows(tokens);
        List<List<Rows>> rows = new ArrayList<>();
        ByteBuffer[][] memory = new ByteBuffer[2][2 * LAYERS];
        for (int k = 0; k < 2; k++) {
            rows.add(new ArrayList<>());
            for (int t = 0; t < 2 * LAYERS; t++) {
                memory[k][t] = ByteBuffer.allocateDirect(bytes);
                if (k == 0) {
                    for (int i = 0; i < N * WIDTH; i++) {
                        memory[k][t].putShort(at.of(t, i / WIDTH, i % WIDTH), values.get(t).getShort(2 * i));
                    }
                }
                rows.get(k).add(layout.rows(memory[k][t], t));
            }
        }
        assertEquals(N, model.put(Prompt.of(tokens), rows.get(0)).tokens);
        assertEquals(N, Toy.restored(model, tokens));
        try (Match match = model.match(Prompt.of(tokens))) {
            assertEquals(N, match.restore(rows.get(1)).tokens);
        }
        for (int t = 0; t < 2 * LAYERS; t++) {
            assertEquals(memory[0][t], memory[1][t]);
        }
        model.delete(Prompt.of(tokens));
    }

    private interface Place {
        int of(int tensor, int row, int value);
    }

    @Test
    public void strides() {
        layout(N * 3 * ROW, (b, t) -> Rows.from(0).add(b, N, 3 * ROW, 0), (t, i, j) -> i * 3 * ROW + 2 * j); // rows apart
        layout(N * ROW, (b, t) -> Rows.from(0).add(b, N, 2, 2 * N), (t, i, j) -> j * 2 * N + 2 * i); // the values of a channel next to each other
        layout(N * 2 * ROW, (b, t) -> Rows.from(0).add(b, N, 2 * ROW, 4), (t, i, j) -> i * 2 * ROW + 4 * j); // every second value
        layout(N * ROW + 24, (b, t) -> { // between position and limit, in three pieces, one of them empty
            ByteBuffer head = b.duplicate().limit(8 + 100 * ROW).position(8);
            ByteBuffer tail = b.duplicate().position(16 + 100 * ROW).slice().limit((N - 100) * ROW);
            return Rows.from(0).add(head).add(ByteBuffer.allocateDirect(0)).add(tail.order(ByteOrder.LITTLE_ENDIAN));
        }, (t, i, j) -> (i < 100 ? 8 : 16) + i * ROW + 2 * j);
    }

    private void refused(Code code, String words, Runnable call) {
        DormouseException err = assertThrows(DormouseException.class, call::run);
        assertSame(err.getMessage(), code, err.code());
        assertTrue(err.getMessage(), err.getMessage().contains(words));
    }

    @Test
    public void wrongBuffers() {
        int[] tokens = tokens(N, 1);
        Prompt prompt = Prompt.of(tokens);
        List<ByteBuffer> good = Toy.rows(tokens);
        for (int t = 0; t < good.size(); t++) {
            int at = t;
            List<Rows> rows = given(good);
            rows.set(at, Rows.of(ByteBuffer.allocate(N * ROW)));
            refused(Code.ROWS, "layer " + t / 2 + (t % 2 == 0 ? " K" : " V") + " (f16, width 64): a heap buffer", () -> model.put(prompt, rows));
            rows.set(at, Rows.of(ByteBuffer.allocateDirect(N * ROW - 1)));
            refused(Code.ROWS, "no whole rows", () -> model.put(prompt, rows));
            rows.set(at, Rows.from(0).add(ByteBuffer.allocateDirect(N * ROW - 1), N, 0, 0)); // the last row does not fit
            refused(Code.ROWS, "", () -> model.put(prompt, rows));
            rows.set(at, Rows.from(0).add(ByteBuffer.allocateDirect(N * ROW), N, Long.MAX_VALUE, 2));
            refused(Code.ROWS, "", () -> model.put(prompt, rows));
            rows.set(at, Rows.from(Integer.MAX_VALUE).add(good.get(at)));
            refused(Code.ROWS, "", () -> model.put(prompt, rows));
            rows.remove(at);
            refused(Code.ROWS, "rows of 3 tensors: the model has 4", () -> model.put(prompt, rows));
        }
        refused(Code.NOT_STORED, "", () -> {
            List<Rows> late = new ArrayList<>();
            good.forEach(b -> late.add(Rows.from(50).add(b.duplicate().position(50 * ROW))));
            model.put(prompt, late);
        });
        assertThrows(IllegalArgumentException.class, () -> Rows.from(-1));
        assertThrows(IllegalArgumentException.class, () -> Rows.from(0).add(good.get(0), -4, 0, 0));
        assertThrows(IllegalArgumentException.class, () -> Rows.from(0).add(good.get(0), 1, -4, 0));
        assertThrows(NullPointerException.class, () -> Rows.of(null));

        List<ByteBuffer> frozen = new ArrayList<>();
        good.forEach(b -> frozen.add(b.asReadOnlyBuffer()));
        assertEquals(N, model.put(prompt, given(frozen)).tokens); // a put only reads
        List<ByteBuffer> into = Toy.empty(N);
        List<Rows> rows = given(into);
        rows.set(2, Rows.of(into.get(2).asReadOnlyBuffer()));
        try (Match match = model.match(prompt)) {
            refused(Code.ROWS, "layer 1 K (f16, width 64): a read-only buffer", () -> match.restore(rows));
            assertEquals(into.get(2), ByteBuffer.allocateDirect(N * ROW)); // nothing was written
            Restored short_ = match.restore(given(Toy.empty(100)));
            assertEquals("100 tokens: caller's memory ends", short_.toString());
        }
    }

    @Test
    public void layersAndExtensions() {
        int[] all = tokens(N + 50, 1);
        List<ByteBuffer> values = Toy.rows(all);
        List<Rows> first = new ArrayList<>();
        List<Rows> rest = new ArrayList<>();
        for (ByteBuffer b : values) {
            first.add(Rows.of(b.duplicate().limit(N * ROW)));
            rest.add(Rows.from(N).add(b.duplicate().position(N * ROW)));
        }
        assertEquals(N, model.put(Prompt.of(java.util.Arrays.copyOf(all, N)), first).tokens);
        List<String> seen = new ArrayList<>();
        List<ByteBuffer> got = Toy.empty(N + 50);
        try (Match match = model.match(Prompt.of(all))) {
            assertEquals(N, match.restore(given(got), (layer, n) -> seen.add(layer + ":" + n), Call.UNLIMITED).tokens);
            assertEquals(List.of("0:" + N, "1:" + N), seen);
            ArithmeticException mine = new ArithmeticException("mine");
            assertSame(mine, assertThrows(ArithmeticException.class, () -> match.restore(given(got), (layer, n) -> {
                throw mine;
            }, Call.UNLIMITED)));
            for (Runnable call : List.<Runnable>of(match::close, store::close, store::suspend, () -> model.probe(Prompt.of(all)), () -> match.restore(given(got)))) {
                refused(Code.CALLBACK, "from within one of its callbacks", () -> match.restore(given(got), (layer, n) -> call.run(), Call.UNLIMITED));
            }
            assertTrue(!match.isClosed() && !store.isClosed());
            assertEquals(N + 50, match.extend(Prompt.of(all), rest).tokens);
            assertEquals(0, match.stateBytes(0));
            refused(Code.ARGUMENT, "tensor 4 of 4", () -> match.stateBytes(4));
        }
        assertEquals(N + 50, Toy.restored(model, all));
    }

    @Test
    public void scopesSpansAdapters() {
        int[] tokens = tokens(N, 1);
        List<Rows> rows = given(Toy.rows(tokens));
        byte[] hash = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, (byte) 0xff};
        Prompt plain = Prompt.of(tokens);
        Prompt alice = plain.scope("älice", 64);
        Prompt adapted = plain.adapter(new Prompt.Adapter(hash, 0.5f)).adapter(new Prompt.Adapter(new byte[16], 2));
        for (Prompt p : List.of(alice, plain.span(new Prompt.Span(32, 40, hash)), adapted)) {
            assertEquals(N, model.put(p, rows).tokens);
            assertEquals(N, model.probe(p).tokens);
        }
        assertEquals(0, model.probe(plain.adapter(new Prompt.Adapter(hash, 0.25f))).tokens);
        assertEquals(64, model.probe(plain.scope("bob", 64)).tokens);
        Deleted deleted = store.deleteScope("älice");
        assertTrue(deleted.blocks > 0 && deleted.bytes > 0);
        store.sync();
        assertTrue(model.probe(alice).tokens < N);
        refused(Code.PROMPT, "", () -> model.probe(plain.span(new Prompt.Span(N - 1, 5, hash))));
        Prompt bob = plain.scope("bob", 64).span(new Prompt.Span(70, 10, hash));
        for (int n : new int[] {30, 64, 66, 80}) {
            model.put(bob.prefix(n), rows);
            assertEquals(n, model.probe(bob.prefix(n)).tokens);
            assertEquals(Math.max(n, 64), model.probe(bob).tokens); // Alice had stored what they share
        }
        store.deleteScope("bob");
        assertEquals(64, model.probe(bob).tokens);
        assertThrows(IllegalArgumentException.class, () -> bob.prefix(N + 1));
        for (Prompt wrong : List.of(plain.scope("alice", N + 5), plain.scope("", 64))) { // characters taken for tokens; a start of nothing
            String says = "scope starts at";
            refused(Code.PROMPT, says, () -> model.put(wrong, rows));
            refused(Code.PROMPT, says, () -> model.probe(wrong));
            refused(Code.PROMPT, says, () -> model.match(wrong));
            refused(Code.PROMPT, says, () -> model.setRef("ref", wrong, new Model.RefOptions()));
            refused(Code.PROMPT, says, () -> model.delete(wrong));
        }
        refused(Code.PROMPT, "token " + (N + 5) + ", the prompt has " + N + " tokens", () -> model.put(plain.scope("alice", N + 5), rows));
        for (Runnable bad : List.<Runnable>of(() -> plain.scope("a\0b", 0), () -> plain.scope("a", -1), () -> new Prompt.Span(-1, 5, hash), () -> new Prompt.Span(1, 5, new byte[15]))) {
            assertThrows(IllegalArgumentException.class, bad::run);
        }
    }

    /** UTF-8 has no halves of surrogate pairs: what is replaced by '?' would be another's scope. */
    @Test
    public void scopesThatAreNoText() {
        Prompt plain = Prompt.of(tokens(N, 1));
        assertEquals(0, model.probe(plain.scope("user-\ud83d\ude00", 0)).tokens);
        for (String half : List.of("user-\ud83d", "user-\ude00", "user-\ud83d!")) {
            for (Runnable bad : List.<Runnable>of(() -> plain.scope(half, 0), () -> store.deleteScope(half))) {
                String said = assertThrows(IllegalArgumentException.class, bad::run).getMessage();
                assertTrue(said, said.startsWith("scope has half of a surrogate pair at index 5"));
            }
            assertTrue(assertThrows(IllegalArgumentException.class, () -> store.deleteRef(half)).getMessage().startsWith("name has"));
            assertTrue(assertThrows(IllegalArgumentException.class, () -> Store.hashFile(new java.io.File(half))).getMessage().startsWith("the file's name has"));
            Descriptor named = Descriptor.of(half, "toy", "0".repeat(32), "0".repeat(32)).tensor(0, "K", "f16", 64).build();
            assertTrue(assertThrows(IllegalArgumentException.class, () -> store.register(named)).getMessage().startsWith("descriptor has"));
        }
    }

    @Test
    public void states() {
        Descriptor d = Descriptor.of("rwkv", "rwkv", "0".repeat(31) + "1", "0".repeat(31) + "2").all().state().stateFormat("1").tensor(0, "K", "f32", 8)
                .tensor(0, "state", "bytes", 0, 1).build();
        Model m = store.register(d);
        int[] tokens = tokens(40, 1);
        ByteBuffer k = ByteBuffer.allocateDirect(40 * 8 * 4).order(ByteOrder.nativeOrder());
        for (int i = 0; i < 40 * 8; i++) {
            k.putFloat(4 * i, i / 3f);
        }
        ByteBuffer state = ByteBuffer.allocateDirect(200).put(5, (byte) 7);
        m.put(Prompt.of(tokens), List.of(Rows.of(k), Rows.from(40).add(state)));
        try (Match match = m.match(Prompt.of(tokens))) {
            assertEquals(200, match.stateBytes(1));
            ByteBuffer gotK = ByteBuffer.allocateDirect(k.capacity());
            ByteBuffer got = ByteBuffer.allocateDirect(200);
            assertEquals(40, match.restore(List.of(Rows.of(gotK), Rows.from(40).add(got))).tokens);
            assertEquals(k, gotK);
            assertEquals(state, got);
        }
        assertFalse(m.fingerprint().equals(model.fingerprint()));
    }
}
