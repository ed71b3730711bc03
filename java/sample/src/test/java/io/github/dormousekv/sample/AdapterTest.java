package io.github.dormousekv.sample;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertSame;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import io.github.dormousekv.Call;
import io.github.dormousekv.DormouseException;
import io.github.dormousekv.DormouseException.Code;
import io.github.dormousekv.Llama;
import io.github.dormousekv.Prompt;
import io.github.dormousekv.Store;
import java.io.File;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.junit.BeforeClass;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** A LoRA adapter of llama.cpp, set through the session: what was computed with it is not handed out without it, or at another scale. */
public class AdapterTest {
    @Rule
    public TemporaryFolder folder = new TemporaryFolder();

    @BeforeClass
    public static void library() {
        EngineTest.load();
    }

    private static native long load(long context, byte[] file);

    /** An adapter of the small model's keys, as a GGUF file. */
    private static byte[] lora() {
        int rank = 4, width = 64, out = 32, layers = 5, at = 0;
        ByteBuffer b = ByteBuffer.allocate(1 << 16).order(ByteOrder.LITTLE_ENDIAN);
        b.put("GGUF".getBytes()).putInt(3).putLong(2 * layers).putLong(4);
        for (String[] field : new String[][] {{"general.architecture", "llama"}, {"general.type", "adapter"}, {"adapter.type", "lora"}}) {
            text(b, field[0]);
            text(b.putInt(8), field[1]);
        }
        text(b, "adapter.lora.alpha");
        b.putInt(6).putFloat(rank);
        for (int i = 0; i < 2 * layers; i++) {
            long n = i % 2 == 0 ? width : rank, m = i % 2 == 0 ? rank : out;
            text(b, "blk." + i / 2 + ".attn_k.weight.lora_" + "ab".charAt(i % 2));
            b.putInt(2).putLong(n).putLong(m).putInt(0).putLong(at);
            at += (int) (4 * n * m);
        }
        b.position((b.position() + 31) / 32 * 32);
        Random values = new Random(7);
        for (int end = b.position() + at; b.position() < end; ) {
            b.putFloat(values.nextFloat() - 0.5f);
        }
        return Arrays.copyOf(b.array(), b.position());
    }

    private static void text(ByteBuffer b, String s) {
        b.putLong(s.length()).put(s.getBytes(StandardCharsets.UTF_8));
    }

    @Test
    public void whatAnAdapterComputedIsItsOwn() throws Exception {
        File model = new File(folder.getRoot(), "model.gguf"), file = new File(folder.getRoot(), "lora.gguf");
        Files.copy(EngineTest.SMALL.toPath(), model.toPath()); // its memo is written beside it
        Files.write(file.toPath(), lora());
        Call any = Call.UNLIMITED;
        try (Store store = Store.open(new File(folder.getRoot(), "s")); Engine e = EngineTest.engine(store, model, 512)) {
            int[] tokens = e.tokens("Once upon a time there was a little girl who had a red ball and a blue car and liked to play in the park with her dog");
            Llama session = EngineTest.field(e, "session", Llama.class);
            long loaded = load((Long) EngineTest.call(e, "context"), file.getPath().getBytes(StandardCharsets.UTF_8));
            assertTrue(loaded != 0);
            byte[] hash = new byte[16];
            String hex = Store.hashFile(file);
            for (int i = 0; i < 16; i++) {
                hash[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
            }
            List<Prompt.Adapter> one = List.of(new Prompt.Adapter(hash, 1)), halved = List.of(new Prompt.Adapter(hash, 0.5f));
            Prompt plain = Prompt.of(tokens), whole = plain.adapters(one), half = plain.adapters(halved);
            int last = tokens.length - 1;

            assertEquals(0, e.read(tokens).getReused());
            session.save(plain, 0, any);
            session.setAdapters(new long[] {loaded}, one, any);
            assertSame(Code.LINEAGE, assertThrows(DormouseException.class, () -> session.save(whole, 0, any)).code()); // it was filled without
            assertEquals(0, again(e, session, whole));
            session.save(whole, 0, any);
            session.setAdapters(new long[] {loaded}, halved, any);
            assertEquals(0, again(e, session, half));
            session.setAdapters(new long[] {loaded}, one, any);
            assertEquals(last, again(e, session, whole));
            session.setAdapters(new long[0], List.of(), any);
            assertEquals(last, e.read(tokens).getReused());
        }
    }

    /** How much of a prompt comes back into an empty sequence; the rest is evaluated. */
    private static int again(Engine e, Llama session, Prompt prompt) {
        EngineTest.call(e, "clear");
        int reused = session.restore(prompt, 0, Call.UNLIMITED).tokens;
        session.prefill(prompt, reused, 0, Call.UNLIMITED);
        return reused;
    }
}
