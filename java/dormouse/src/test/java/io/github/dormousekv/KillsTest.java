package io.github.dormousekv;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertNotEquals;
import static org.junit.Assert.assertSame;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import io.github.dormousekv.DormouseException.Code;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** Processes that hold a store, and are killed: -Ddormouse.kills=N kills N of them. */
public class KillsTest {
    static final int TURN = 100; // tokens
    static final int TURNS = 3;

    @Rule
    public TemporaryFolder folder = new TemporaryFolder();

    /** The first n tokens of a conversation, all of which are its own. */
    static Prompt prompt(int id, int n) {
        return Prompt.of(Arrays.copyOf(conversation(id), n)).scope("conversation " + id, 0);
    }

    static int[] conversation(int id) {
        int[] out = new int[TURN * TURNS];
        for (int i = 0; i < out.length; i++) {
            out[i] = id * 10 + i * 7 % 1000;
        }
        return out;
    }

    /** Has conversations for ever, and says what it begins and what is done: "put 7 100", "done", "delete 5", "done". Every third is deleted in the end. */
    static final class Writer {
        public static void main(String[] args) throws InterruptedException {
            long pause = Long.parseLong(args[2]); // between turns, in ms
            System.out.println("open");
            Store store = Toy.open(new File(args[0]));
            Model model = store.register(Toy.MODEL);
            System.out.println("done");
            for (int id = Integer.parseInt(args[1]);; id++) {
                int[] all = conversation(id);
                List<ByteBuffer> values = Toy.rows(all);
                for (int n = TURN; n <= all.length; n += TURN) {
                    Prompt prompt = prompt(id, n);
                    try (Match match = model.match(prompt)) {
                        if (match.tokens() != n - TURN) {
                            throw new AssertionError("of " + id + " there are " + match.found() + " before turn " + n);
                        }
                        List<Rows> rows = new ArrayList<>();
                        for (ByteBuffer b : values) {
                            rows.add(Rows.from(n - TURN).add(b.duplicate().limit(n * Toy.ROW).position((n - TURN) * Toy.ROW)));
                        }
                        System.out.println("put " + id + " " + n);
                        match.extend(prompt, rows);
                        System.out.println("done");
                    }
                    Thread.sleep(pause);
                }
                if (id % 3 == 0) {
                    System.out.println("delete " + id);
                    store.deleteScope("conversation " + id);
                    System.out.println("done");
                }
            }
        }
    }

    /** What must be there of a conversation: at least, and at most. */
    private static final class Demand {
        int least;
        int most;
    }

    @Test
    public void killedAgainAndAgain() throws Exception {
        int kills = Integer.getInteger("dormouse.kills", 8);
        File dir = new File(folder.getRoot(), "s");
        Random random = new Random(1);
        Map<Integer, Demand> demands = new TreeMap<>();
        Map<String, Integer> in = new TreeMap<>(); // the midst of what
        int lost = 0;
        int wrong = 0;
        int resurrected = 0;
        long compared = 0;
        for (int k = 0; k < kills; k++) {
            boolean between = k % 2 == 0;
            String doing = between ? between(dir, k, demands, random) : midst(dir, k, demands, random);
            in.merge(doing, 1, Integer::sum);
            try (Store store = Toy.open(dir); Model model = store.register(Toy.MODEL)) {
                for (Map.Entry<Integer, Demand> e : demands.entrySet()) {
                    Demand d = e.getValue();
                    int n;
                    try {
                        n = Toy.restored(model, conversation(e.getKey()), prompt(e.getKey(), TURN * TURNS));
                    } catch (AssertionError err) {
                        wrong++;
                        continue;
                    }
                    compared += n;
                    if (n < d.least) {
                        System.out.println("lost: of conversation " + e.getKey() + " " + n + " tokens are there, " + d.least + " were put");
                        lost++;
                    }
                    if (n > d.most) {
                        System.out.println("resurrected: of conversation " + e.getKey() + " " + n + " tokens are there, at most " + d.most + " are to be");
                        resurrected++;
                    }
                    d.least = d.most = n; // as it was found, it stays
                }
                assertTrue(store.verify().damage.toString(), store.verify().damage.isEmpty());
                if (k % 20 == 19) { // the store does not grow for ever
                    for (int id : demands.keySet()) {
                        store.deleteScope("conversation " + id);
                    }
                    demands.values().forEach(d -> d.least = d.most = 0);
                }
            }
        }
        System.out.println("kills: Java: " + kills + " kills, " + in + ", " + demands.size() + " conversations, " + compared + " tokens compared, lost " + lost + ", wrong " + wrong
                + ", resurrected " + resurrected);
        assertEquals(List.of(0, 0, 0), List.of(lost, wrong, resurrected));
    }

    /** Kills a writer that pauses after a turn. */
    private String between(File dir, int k, Map<Integer, Demand> demands, Random random) throws Exception {
        Process p = Children.start(Writer.class, dir.getPath(), Integer.toString(k * 50), "60000");
        BufferedReader said = Children.lines(p);
        List<String> journal = new ArrayList<>();
        for (int i = 0; i < 4; i++) { // open, done, put, done
            journal.add(said.readLine());
        }
        Thread.sleep(random.nextInt(20));
        return killed(p, said, journal, demands);
    }

    /** Kills a writer that never rests. */
    private String midst(File dir, int k, Map<Integer, Demand> demands, Random random) throws Exception {
        Process p = Children.start(Writer.class, dir.getPath(), Integer.toString(k * 50), "0");
        BufferedReader said = Children.lines(p);
        List<String> journal = new ArrayList<>();
        int lines = k % 8 == 7 ? 1 : 3 + random.nextInt(60); // sometimes while it opens
        while (journal.size() < lines || journal.get(journal.size() - 1).equals("done")) {
            journal.add(said.readLine());
        }
        for (long until = System.nanoTime() + random.nextInt(1_500_000); System.nanoTime() < until;) {
            Thread.onSpinWait();
        }
        return killed(p, said, journal, demands);
    }

    /** Kills it, adds what it said to the demands, and gives what it was doing: a word of the journal. */
    private static String killed(Process p, BufferedReader said, List<String> journal, Map<Integer, Demand> demands) throws Exception {
        p.toHandle().destroyForcibly(); // Process.destroyForcibly would throw away what it said
        for (String line = said.readLine(); line != null; line = said.readLine()) {
            journal.add(line);
        }
        assertEquals(128 + 9, p.waitFor());
        String doing = "rest";
        for (String line : journal) {
            String[] words = line.split(" ");
            boolean began = !words[0].equals("done");
            if (began) {
                doing = line;
            }
            String[] done = doing.split(" ");
            if (done[0].equals("put") && done.length == 3) {
                Demand d = demands.computeIfAbsent(Integer.parseInt(done[1]), id -> new Demand());
                d.most = Integer.parseInt(done[2]);
                d.least = began ? d.least : d.most;
            } else if (done[0].equals("delete") && done.length == 2) {
                Demand d = demands.get(Integer.parseInt(done[1]));
                d.least = 0;
                d.most = began ? d.most : 0;
            }
            if (!began) {
                doing = "rest";
            }
        }
        return doing.split(" ")[0];
    }

    /** Opens a store, says so, and waits. */
    static final class Holder {
        public static void main(String[] args) throws IOException {
            Store store = Toy.open(new File(args[0]));
            System.out.println("open");
            System.in.read();
            store.close();
        }
    }

    @Test
    public void anotherProcessHasTheStore() throws Exception {
        File dir = new File(folder.getRoot(), "s");
        for (boolean kill : new boolean[] {false, true}) {
            Process p = Children.start(Holder.class, dir.getPath());
            assertEquals("open", Children.lines(p).readLine());
            DormouseException err = assertThrows(DormouseException.class, () -> Toy.open(dir));
            assertSame(Code.LOCKED, err.code());
            assertTrue(err.getMessage(), err.getMessage().contains(Long.toString(p.pid())));
            try (Store reader = Store.open(dir, new Store.Options().readOnly())) {
                assertTrue(reader.stats().blocks == 0);
            }
            if (kill) {
                p.toHandle().destroyForcibly(); // Process.destroyForcibly would throw away what it said
            } else {
                p.getOutputStream().close();
            }
            assertEquals(kill ? 128 + 9 : 0, p.waitFor());
            Toy.open(dir).close();
        }
        assertNotEquals(0, dir.list().length);
    }
}
