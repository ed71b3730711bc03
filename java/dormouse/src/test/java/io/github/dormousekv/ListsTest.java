package io.github.dormousekv;

import static io.github.dormousekv.Toy.tokens;
import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertSame;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import io.github.dormousekv.DormouseException.Code;
import java.io.File;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.Before;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** What a store says of itself, and how it gives space back. */
public class ListsTest {
    private static final int N = 300;

    @Rule
    public TemporaryFolder folder = new TemporaryFolder();

    private File dir;

    @Before
    public void name() {
        dir = new File(folder.getRoot(), "s");
    }

    private static DormouseException refused(Code code, Runnable call) {
        DormouseException err = assertThrows(DormouseException.class, call::run);
        assertSame(err.getMessage(), code, err.code());
        return err;
    }

    private static Descriptor otherWeights() {
        return Descriptor.of("toy", "toy", "ff".repeat(16), "ff".repeat(16)).tensor(0, "K", "f16", 64).build();
    }

    @Test
    public void explain() {
        try (Store store = Toy.open(dir); Model model = store.register(Toy.MODEL)) {
            int[] tokens = tokens(N, 1);
            Prompt prompt = Prompt.of(tokens);
            Explanation x = model.explain(prompt);
            assertEquals("nothing stored", x.reason);
            assertEquals(N, x.prompt);
            assertEquals(0, x.tokens);
            assertTrue(x.blocks.isEmpty() && x.elsewhere.isEmpty());
            Toy.put(model, tokens);
            int[] other = tokens.clone();
            other[160]++;
            x = model.explain(Prompt.of(other));
            assertEquals("diverged", x.reason);
            assertEquals(160, x.tokens);
            assertEquals(160, x.reasonAt);
            assertTrue(x.toString(), x.toString().startsWith("160 of 300 tokens would be reused: diverged"));
            assertEquals(List.of("stored"), x.blocks.get(0).groups);
            assertTrue(x.blocks.get(0).shared && x.blocks.get(0).start == 0 && x.blocks.get(0).end > 0 && x.blocks.get(0).key.length() == 32);
            assertEquals(100, model.explain(prompt, 100, Call.UNLIMITED).tokens);
            try (Model second = store.register(otherWeights())) {
                Explanation.Elsewhere elsewhere = second.explain(prompt).elsewhere.get(0);
                assertEquals(model.fingerprint(), elsewhere.fingerprint);
                assertEquals(N, elsewhere.tokens);
                assertTrue(elsewhere.differs.stream().anyMatch(d -> d.field.equals("weights") && !d.have.equals(d.want)));
            }
            Cancel cancel = new Cancel();
            cancel.set();
            refused(Code.CANCELLED, () -> model.explain(prompt, N, Call.until(cancel)));
        }
    }

    @Test
    public void lists() {
        try (Store store = Toy.open(dir); Model model = store.register(Toy.MODEL)) {
            int[] tokens = tokens(N, 1);
            assertArrayEquals(new byte[] {0, (byte) 0xff, 0x7f}, Json.bytes("00ff7f"));
            assertTrue(store.refs().isEmpty() && model.notes().isEmpty());
            Toy.put(model, tokens);
            model.setRef("a \"pin\"", Prompt.of(tokens), new Model.RefOptions().pinned().priority(3));
            model.setRef("märk", Prompt.of(tokens).prefix(100), new Model.RefOptions().ttl(1000, TimeUnit.SECONDS));
            Ref pin = store.refs().get(0);
            Ref mark = store.refs().get(1);
            assertEquals("a \"pin\"", pin.name);
            assertEquals(model.fingerprint(), pin.model);
            assertTrue(pin.stored && pin.pinned && pin.priority == 3 && pin.tokens == N && pin.expiresMillis == 0);
            assertEquals("märk", mark.name);
            assertFalse(mark.pinned);
            assertEquals(1000, (mark.expiresMillis - mark.setMillis) / 1000.0, 2);
            ModelInfo only = store.models().get(0);
            assertTrue(only.latest && only.blocks > 0 && only.bytes > 0 && only.error.isEmpty());
            assertEquals(model.fingerprint(), only.fingerprint);
            for (int i = 0; i < 100; i++) { // more than the first buffer holds
                model.setRef("n".repeat(500) + i, Prompt.of(tokens), new Model.RefOptions());
            }
            assertEquals(102, store.refs().size());
            Stats stats = store.stats();
            assertEquals(2L << 30, stats.budget);
            assertTrue(stats.diskBytes > 0 && stats.diskHighWater >= stats.diskBytes && !stats.full && stats.pendingBytes == 0);
            assertTrue(stats.toString(), stats.toString().contains("MiB"));
        }
    }

    @Test
    public void space() {
        Store store = Store.open(dir, new Store.Options().codec("raw").segmentBytes(1 << 16).minFree(-1));
        Model model = store.register(Toy.MODEL);
        for (int seed = 1; seed < 30; seed++) {
            Toy.put(model, tokens(N, seed));
        }
        model.setRef("pin", Prompt.of(tokens(N, 1)), new Model.RefOptions().pinned());
        store.checkpoint();
        long before = store.shrink(1L << 40);
        assertEquals(N, Toy.restored(model, tokens(N, 2)));
        long after = store.shrink(0);
        assertTrue(before + " bytes, then " + after, after > 0 && after < before);
        assertTrue(Toy.restored(model, tokens(N, 2)) < N);
        Compacted done = store.compact(0, true, Call.UNLIMITED);
        assertTrue(done.segments > 0 && done.records > 0 && done.bytes > 0 && done.before > 0 && done.after > 0);
        store.compact();
        assertEquals(N, Toy.restored(model, tokens(N, 1)));
        refused(Code.ARGUMENT, () -> store.shrink(-1));
        assertTrue(refused(Code.ARGUMENT, () -> store.compact(1.5, false, Call.UNLIMITED)).getMessage().contains("LiveShare"));
        List<Runnable> all = List.of(store::checkpoint, store::refs, store::models, model::notes, () -> store.shrink(0), store::compact, () -> model.explain(Prompt.of(1, 2)));
        store.suspend();
        all.forEach(call -> refused(Code.SUSPENDED, call));
        store.resume();
        store.close();
        all.forEach(call -> refused(Code.CLOSED, call));
    }

    @Test
    public void evictionOptions() {
        for (Store.Options good : List.of(new Store.Options().eviction("fifo"), new Store.Options().eviction("cost-aware"), new Store.Options().depthCap(64),
                new Store.Options().waterMarks(0.25, 0.9))) {
            Store.open(dir, good).close();
        }
        for (Store.Options bad : List.of(new Store.Options().eviction("mru"), new Store.Options().depthCap(0), new Store.Options().waterMarks(0.9, 0.8),
                new Store.Options().waterMarks(Double.NaN, 1))) {
            refused(Code.ARGUMENT, () -> Store.open(dir, bad));
        }
    }
}
