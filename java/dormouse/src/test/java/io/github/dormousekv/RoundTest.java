package io.github.dormousekv;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** What goes in comes out. */
public class RoundTest {
    static final int N = 300;

    @Rule
    public TemporaryFolder folder = new TemporaryFolder();

    @Test
    public void whatIsPutIsRestored() {
        try (Store store = Toy.open(folder.getRoot().toPath().resolve("s").toFile());
                Model model = store.register(Toy.MODEL)) {
            int[] tokens = Toy.tokens(N, 1);
            Put put = Toy.put(model, tokens);
            assertEquals(N, put.tokens);
            assertTrue(put.blocks > 0 && put.bytes > 0);
            assertEquals(N, Toy.restored(model, tokens));
            assertEquals(N, model.probe(Prompt.of(tokens)).tokens);
            assertEquals(100, model.probe(Prompt.of(tokens), 100, Call.UNLIMITED).tokens);
            assertEquals(N, model.prefetch(Prompt.of(tokens)));
            Restored other = model.probe(Prompt.of(new int[N]));
            assertEquals("0 tokens: nothing stored", other.toString());
        }
    }
}
