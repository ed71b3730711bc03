package io.github.dormousekv;

import static io.github.dormousekv.Toy.given;
import static io.github.dormousekv.Toy.tokens;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertSame;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import io.github.dormousekv.DormouseException.Code;
import java.io.File;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** Several threads at a time, and the JVM's own signals beside Go's. */
public class ThreadsTest {
    static final int N = 150;

    @Rule
    public TemporaryFolder folder = new TemporaryFolder();

    private interface Work {
        void run(int thread) throws Exception;
    }

    private static void together(int threads, Work work) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        List<Future<?>> all = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            int thread = i;
            all.add(pool.submit(() -> {
                work.run(thread);
                return null;
            }));
        }
        for (Future<?> f : all) {
            f.get();
        }
        pool.shutdown();
    }

    @Test
    public void eightThreads() throws Exception {
        try (Store store = Toy.open(new File(folder.getRoot(), "s")); Model model = store.register(Toy.MODEL)) {
            together(8, thread -> {
                int[] tokens = tokens(N, thread % 5); // some of them the same
                for (int i = 0; i < 200; i++) {
                    if (i % 10 == 0) {
                        Toy.put(model, tokens);
                    }
                    assertEquals(N, Toy.restored(model, tokens));
                    String name = "none " + thread;
                    DormouseException err = assertThrows(DormouseException.class, () -> store.deleteRef(name));
                    assertTrue(err.getMessage(), err.code() == Code.NOT_FOUND && err.getMessage().contains(name)); // each thread's own
                }
            });
            assertTrue(store.verify().damage.isEmpty());
        }
    }

    /** Whoever uses what another thread closes meanwhile gets an answer or an exception. */
    @Test
    public void closedMeanwhile() throws Exception {
        int[] tokens = tokens(N, 1);
        int[] refused = new int[2];
        for (int round = 0; round < 20; round++) {
            File dir = new File(folder.getRoot(), "s" + round % 2);
            Store store = Toy.open(dir);
            Model model = store.register(Toy.MODEL);
            Toy.put(model, tokens);
            Match match = model.match(Prompt.of(tokens));
            AtomicInteger closed = new AtomicInteger();
            int pause = round;
            together(8, thread -> {
                if (thread == 0) {
                    Thread.sleep(pause % 5);
                    match.close();
                    for (;;) {
                        try {
                            store.close();
                            return;
                        } catch (DormouseException err) {
                            assertSame(Code.LEASED, err.code()); // by another thread's match
                        }
                    }
                }
                List<Rows> into = given(Toy.empty(N));
                List<Rows> rows = given(Toy.rows(tokens));
                for (;;) {
                    try {
                        if (thread % 2 == 0) {
                            assertEquals(N, match.restore(into).tokens);
                        } else if (thread % 3 == 0) {
                            model.put(Prompt.of(tokens), rows);
                        } else {
                            model.match(Prompt.of(tokens)).close();
                        }
                    } catch (DormouseException err) {
                        assertSame(err.getMessage(), Code.CLOSED, err.code());
                        closed.incrementAndGet();
                        return;
                    }
                }
            });
            assertEquals(7, closed.get());
            assertTrue(store.isClosed());
        }
    }

    private static int depth(int n) {
        return 1 + depth(n + 1) + n;
    }

    /** The JVM finds null pointers and the ends of stacks by signals. Go's handlers, which are before its own now, hand them on. */
    @Test
    public void signalsOfTheJvm() throws Exception {
        try (Store store = Toy.open(new File(folder.getRoot(), "s")); Model model = store.register(Toy.MODEL)) {
            int[] tokens = tokens(N, 1);
            Toy.put(model, tokens);
            together(4, thread -> {
                int[][] maybe = {tokens, null};
                int caught = 0;
                for (int i = 0; i < 40_000; i++) {
                    try {
                        caught -= maybe[i % 4 == 3 ? 1 : 0].length - N;
                    } catch (NullPointerException err) {
                        caught++;
                    }
                    if (i % 4_000 == 0) {
                        assertEquals(N, Toy.restored(model, tokens));
                        assertThrows(StackOverflowError.class, () -> depth(0));
                    }
                }
                assertEquals(10_000, caught);
            });
            System.gc();
            assertEquals(N, Toy.restored(model, tokens));
        }
    }
}
