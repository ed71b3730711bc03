package io.github.dormousekv;

import static io.github.dormousekv.Toy.given;
import static io.github.dormousekv.Toy.tokens;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNotEquals;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertSame;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import io.github.dormousekv.DormouseException.Code;
import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.Before;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** Stores: errors, ends, and limits of time. */
public class StoreTest {
    static final int N = 300;

    @Rule
    public TemporaryFolder folder = new TemporaryFolder();

    private File dir;

    @Before
    public void name() {
        dir = new File(folder.getRoot(), "störe");
    }

    private static DormouseException refused(Code code, Runnable call) {
        DormouseException err = assertThrows(DormouseException.class, call::run);
        assertSame(err.getMessage(), code, err.code());
        return err;
    }

    @Test
    public void afterClose() {
        int[] tokens = tokens(N, 1);
        List<Rows> rows = given(Toy.rows(tokens));
        Store store = Toy.open(dir);
        Model model = store.register(Toy.MODEL);
        Model second = store.register(Toy.MODEL);
        assertEquals(model.fingerprint(), second.fingerprint());
        model.put(Prompt.of(tokens), rows);
        Match match = model.match(Prompt.of(tokens));
        refused(Code.LEASED, store::close);
        assertFalse(store.isClosed());
        match.close();
        match.close();
        assertTrue(match.isClosed());
        second.close();
        for (Runnable r : List.<Runnable>of(() -> match.restore(rows), () -> match.extend(Prompt.of(tokens), rows), () -> match.stateBytes(0),
                () -> second.probe(Prompt.of(tokens)), second::retire)) {
            assertTrue(refused(Code.CLOSED, r).getMessage().contains("closed"));
        }
        store.close();
        store.close();
        for (Runnable r : List.<Runnable>of(store::sync, store::suspend, store::resume, store::stats, store::verify, () -> store.pressure(Store.Pressure.LOW), () -> store.deleteRef("a"),
                () -> store.deleteScope("a"), () -> store.register(Toy.MODEL), model::fingerprint, () -> model.put(Prompt.of(tokens), rows), () -> model.probe(Prompt.of(tokens)),
                () -> model.match(Prompt.of(tokens)), () -> model.prefetch(Prompt.of(tokens)), () -> model.delete(Prompt.of(tokens)),
                () -> model.setRef("a", Prompt.of(tokens), new Model.RefOptions()), model::retire)) {
            refused(Code.CLOSED, r);
        }
        model.close();
        try (Store again = Toy.open(dir)) {
            assertEquals(N, Toy.restored(again.register(Toy.MODEL), tokens));
        }
    }

    @Test
    public void options() throws IOException {
        for (Store.Options bad : List.of(new Store.Options().budget(-1), new Store.Options().codec("q99"), new Store.Options().compression("\"\\\n"), new Store.Options().codec("Ω"),
                new Store.Options().checkpointMillis(Long.MAX_VALUE))) {
            DormouseException err = refused(Code.ARGUMENT, () -> Store.open(dir, bad));
            assertNull(err.file());
            assertEquals(-1, err.offset());
        }
        assertThrows(IllegalArgumentException.class, () -> Store.open(new File("a\0b")));
        try (Store store = Store.open(dir, new Store.Options().budget(64 << 20).minFree(1).maxBlocks(1000).durableAgainstPowerCuts().codec("q8_0").compression("zstd").segmentBytes(1 << 20)
                .checkpointMillis(100).checkpointBytes(1 << 20).allowSharedDir())) {
            assertTrue(dir.isDirectory()); // the name's umlaut is the same to both
            assertTrue(refused(Code.LOCKED, () -> Store.open(dir)).getMessage().matches("(?s).*\\d.*"));
        }
        try (Store store = Store.open(dir, new Store.Options().readOnly())) {
            refused(Code.READ_ONLY, () -> store.register(Toy.MODEL));
        }
        Files.write(folder.newFolder("other").toPath().resolve("file"), new byte[1]);
        refused(Code.FOREIGN, () -> Store.open(new File(folder.getRoot(), "other")));
        File file = folder.newFile("a file");
        refused(Code.FOREIGN, () -> Store.open(file));
        refused(Code.DENIED, () -> Store.open(new File("/sys/dormouse"))); // not even root makes a folder there
        refused(Code.NOT_FOUND, () -> Store.open(new File("/does/not/exist"), new Store.Options().readOnly()));
        refused(Code.ARGUMENT, () -> Store.open(new File("")));
        assertFalse(Store.version().isEmpty());
    }

    @Test
    public void descriptors() {
        try (Store store = Toy.open(dir)) {
            refused(Code.DESCRIPTOR, () -> store.register(Descriptor.of("x", "x", "0".repeat(31) + "1", "0".repeat(31) + "2").build()));
            refused(Code.ARGUMENT, () -> store.register(Descriptor.of("x", "x", "zz", "").build()));
            Descriptor.Builder b = Descriptor.of("\"x\"\t", "x", "0".repeat(31) + "1", "0".repeat(31) + "2");
            assertTrue(refused(Code.ARGUMENT, () -> store.register(b.tensor(0, "K", "f17", 4).build())).getMessage().contains("f17"));
            Descriptor full = Descriptor.of("full", "gemma3", "0".repeat(31) + "1", "0".repeat(31) + "2").all().window(511).rope("neox", 256, 1e6f, 1, "", "").rotated().shard(0, 2)
                    .blockTokens(32).tensor(0, "K", "bf16", 256).tensor(0, "V", "q8_0", 256).tensor(1, "K", "f16", 256, 1).tensor(1, "V", "f16", 256, 1).build();
            assertEquals(32, store.register(full).fingerprint().length());
            assertEquals(8 * 34, full.tensors().get(1).rowBytes());
            assertThrows(IllegalArgumentException.class, () -> b.rope("neox", 256, Float.NaN, 1, "", ""));
        }
    }

    @Test
    public void hashes() throws IOException {
        byte[] abc = "abc".getBytes(StandardCharsets.UTF_8);
        assertEquals(32, Store.hash(abc).length());
        assertNotEquals(Store.hash(abc), Store.hash(new byte[0]));
        File f = folder.newFile("f");
        Files.write(f.toPath(), abc);
        assertEquals(32, Store.hashFile(f).length());
        refused(Code.ARGUMENT, () -> Store.hashFile(new File(folder.getRoot(), "none")));
    }

    /** Changes a byte of each file of the store that holds these bytes. */
    private void damage(byte[] what) throws IOException {
        List<Path> files;
        try (Stream<Path> walk = Files.walk(dir.toPath())) {
            files = walk.filter(Files::isRegularFile).collect(Collectors.toList());
        }
        int found = 0;
        for (Path p : files) {
            int at = new String(Files.readAllBytes(p), StandardCharsets.ISO_8859_1).indexOf(new String(what, StandardCharsets.ISO_8859_1));
            if (at >= 0) {
                try (RandomAccessFile f = new RandomAccessFile(p.toFile(), "rw")) {
                    f.seek(at);
                    f.write(what[0] ^ 0xff);
                }
                found++;
            }
        }
        assertTrue(found > 0);
    }

    @Test
    public void damageHasAPlace() throws IOException {
        List<String> lines = Collections.synchronizedList(new ArrayList<>());
        int[] tokens = tokens(N, 1);
        Store.logTo((level, text) -> {
            lines.add(level + " " + text);
            lines.add(refused(Code.CALLBACK, () -> Store.hash(new byte[1])).getMessage());
            throw new IllegalStateException("a log that fails is no fault of the store's");
        });
        try (Store store = Toy.open(dir)) {
            Toy.put(store.register(Toy.MODEL), tokens);
            Verified all = store.verify();
            assertTrue(all.damage.isEmpty() && all.bytes > 0 && all.files > 0 && all.records > 0);
        }
        byte[] row = new byte[Toy.ROW];
        Toy.rows(tokens).get(1).position(200 * Toy.ROW).get(row);
        damage(row);
        try (Store store = Toy.open(dir)) {
            Model model = store.register(Toy.MODEL);
            List<ByteBuffer> got = Toy.empty(N);
            try (Match match = model.match(Prompt.of(tokens))) {
                Restored r = match.restore(given(got));
                assertTrue(r.toString(), r.tokens < N && r.reason.startsWith("damaged"));
                assertEquals(ByteBuffer.allocate((N - r.tokens) * Toy.ROW), got.get(1).position(r.tokens * Toy.ROW)); // rows beyond are zero
            }
            Verified.Damage d = store.verify().damage.get(0);
            assertTrue(d.toString(), new File(d.file).isAbsolute() || new File(dir, d.file).exists());
            assertTrue(d.toString(), d.offset >= 0 && !d.what.isEmpty());
        } finally {
            Store.logTo(null);
        }
        assertTrue(lines.toString(), lines.stream().anyMatch(l -> l.startsWith(Log.ERROR + " ") && l.contains("damaged")));
    }

    @Test
    public void anExceptionHasFileAndOffset() throws IOException {
        try (Store store = Toy.open(dir)) {
            Toy.put(store.register(Toy.MODEL), tokens(N, 1));
        }
        Path format = dir.toPath().resolve("FORMAT");
        Path segment = dir.toPath().resolve("segments/0000000000000001.seg");
        for (Path p : List.of(format, segment)) { // either is made anew from the other
            try (RandomAccessFile f = new RandomAccessFile(p.toFile(), "rw")) {
                f.seek(24);
                f.write(new byte[] {1, 2, 3, 4, 5, 6, 7, 8});
            }
        }
        DormouseException err = refused(Code.CORRUPT, () -> Toy.open(dir));
        assertEquals(format.toString(), err.file());
        assertTrue(err.getMessage(), err.getMessage().contains("at offset " + err.offset() + ": expected "));
    }

    @Test
    public void refsDeletionsSleep() {
        int[] tokens = tokens(N, 1);
        Prompt prompt = Prompt.of(tokens);
        try (Store store = Toy.open(dir)) {
            Model model = store.register(Toy.MODEL);
            Toy.put(model, tokens);
            model.setRef("pin", prompt, new Model.RefOptions().pinned().priority(3).ttl(1000, TimeUnit.SECONDS));
            model.setRef("mark", Prompt.of(Arrays.copyOf(tokens, 100)), new Model.RefOptions());
            store.deleteRef("pin");
            refused(Code.NOT_FOUND, () -> store.deleteRef("pin"));
            refused(Code.ARGUMENT, () -> model.setRef("x", prompt, new Model.RefOptions().priority(255)));
            refused(Code.ARGUMENT, () -> model.setRef("x", prompt, new Model.RefOptions().priority(-4)));
            assertThrows(IllegalArgumentException.class, () -> new Model.RefOptions().ttl(0, TimeUnit.SECONDS));
            store.suspend();
            refused(Code.SUSPENDED, () -> Toy.put(model, tokens));
            store.resume();
            assertEquals(N, Toy.restored(model, tokens));
            for (Store.Pressure level : Store.Pressure.values()) {
                store.pressure(level);
            }
            assertEquals(N, model.probe(prompt).tokens);
            assertTrue(model.delete(prompt).blocks > 0);
            assertTrue(Toy.restored(model, tokens) < N); // what is shorter may be others', too
            model.put(prompt, given(Toy.rows(tokens)), new Model.PutOptions().codec("q8_0").compression("zstd").keepStates(1), Call.UNLIMITED);
            refused(Code.ARGUMENT, () -> model.put(prompt, given(Toy.rows(tokens)), new Model.PutOptions().codec("q99"), Call.UNLIMITED));
            model.retire();
            refused(Code.RETIRED, () -> Toy.put(model, tokens));
        }
    }

    @Test
    public void noSpace() {
        try (Store store = Store.open(dir, new Store.Options().minFree(1L << 60).codec("raw"))) {
            refused(Code.NO_SPACE, () -> Toy.put(store.register(Toy.MODEL), tokens(N, 1)));
        }
    }

    @Test
    public void timeAndCancel() {
        int[] tokens = tokens(N, 1);
        Prompt prompt = Prompt.of(tokens);
        List<Rows> rows = given(Toy.rows(tokens));
        Cancel cancel = new Cancel();
        Call both = Call.within(60, TimeUnit.SECONDS).orUntil(cancel);
        try (Store store = Toy.open(dir)) {
            Model model = store.register(Toy.MODEL, both);
            model.put(prompt, rows, new Model.PutOptions(), both);
            try (Match match = model.match(prompt, N, both)) {
                cancel.set();
                assertTrue(cancel.isSet());
                for (Runnable r : List.<Runnable>of(() -> model.put(prompt, rows, new Model.PutOptions(), both), () -> match.restore(rows, both),
                        () -> match.extend(prompt, rows, new Model.PutOptions(), both), () -> model.probe(prompt, N, both), () -> model.prefetch(prompt, N, both),
                        () -> model.match(prompt, N, both), () -> model.setRef("a", prompt, new Model.RefOptions(), both), () -> model.delete(prompt, both), () -> model.retire(both),
                        () -> store.register(Toy.MODEL, both), () -> store.sync(both), () -> store.suspend(both), () -> store.resume(both), () -> store.verify(both),
                        () -> store.pressure(Store.Pressure.LOW, both), () -> store.deleteRef("a", both), () -> store.deleteScope("a", both),
                        () -> Store.open(new File(dir, "x"), new Store.Options(), both))) {
                    refused(Code.CANCELLED, r);
                }
                cancel.clear();
                assertEquals(N, match.restore(rows, Call.until(cancel)).tokens);
                assertEquals(N, match.restore(rows, Call.within(Long.MAX_VALUE, TimeUnit.DAYS)).tokens);
            }
        }
        for (long bad : new long[] {0, -4}) {
            assertThrows(IllegalArgumentException.class, () -> Call.within(bad, TimeUnit.SECONDS));
        }
    }

    /** Of ever larger stores, one is not verified in a millisecond, and one not before another thread cancels. */
    @Test
    public void aLongCallEnds() throws InterruptedException {
        Code[] got = new Code[2];
        try (Store store = Store.open(dir, new Store.Options().codec("raw").budget(1 << 30))) {
            Model model = store.register(Toy.MODEL);
            for (int seed = 0; seed < 64 && (got[0] == null || got[1] == null); seed++) {
                Toy.put(model, tokens(2000, seed));
                Cancel cancel = new Cancel();
                Thread other = new Thread(cancel::set);
                for (Call call : List.of(Call.within(1, TimeUnit.MICROSECONDS), Call.until(cancel))) {
                    if (call.ms == 0) {
                        other.start();
                    }
                    try {
                        store.verify(call);
                    } catch (DormouseException err) {
                        got[call.ms == 0 ? 1 : 0] = err.code();
                    }
                }
                other.join();
            }
        }
        assertEquals(List.of(Code.DEADLINE, Code.CANCELLED), Arrays.asList(got));
    }
}
