package io.github.dormousekv;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

import java.io.BufferedReader;
import java.io.File;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** Where the library is found. */
public class LibraryTest {
    private static final String PLACE = "io/github/dormousekv/native/linux-x86_64";

    @Rule
    public TemporaryFolder folder = new TemporaryFolder();

    /** Puts and restores, and says so, or why not. */
    static final class Round {
        public static void main(String[] args) throws Exception {
            try (Store store = Toy.open(new File(args[0]))) {
                int[] tokens = Toy.tokens(100, 1);
                Model model = store.register(Toy.MODEL);
                Toy.put(model, tokens);
                System.out.println("restored " + Toy.restored(model, tokens));
            } catch (LinkageError err) {
                System.out.println(err.getMessage());
            }
        }
    }

    /** The classes, with the native library or without it. */
    private String classes(boolean library) throws Exception {
        Path from = Path.of(Store.class.getProtectionDomain().getCodeSource().getLocation().toURI());
        Path tests = Path.of(Toy.class.getProtectionDomain().getCodeSource().getLocation().toURI());
        Path to = folder.newFolder().toPath();
        for (Path root : List.of(from, tests)) {
            List<Path> files;
            try (Stream<Path> walk = Files.walk(root)) {
                files = walk.filter(p -> Files.isRegularFile(p) && (library || !p.toString().endsWith(".so"))).collect(Collectors.toList());
            }
            for (Path p : files) {
                Path q = to.resolve(root.relativize(p).toString());
                Files.createDirectories(q.getParent());
                Files.copy(p, q);
            }
        }
        return to.toString();
    }

    private String run(String classes, String... options) throws Exception {
        Process p = Children.start(List.of(options), classes, Round.class.getName(), new File(folder.getRoot(), "s").getPath());
        try (BufferedReader said = Children.lines(p)) {
            return said.lines().collect(Collectors.joining("\n"));
        } finally {
            assertEquals(0, p.waitFor());
        }
    }

    @Test
    public void fromEachPlace() throws Exception {
        String with = classes(true);
        String without = classes(false);
        String lib = new File(with, PLACE).getPath();
        File tmp = folder.newFolder("tmp");
        assertEquals("restored 100", run(with, "-Djava.io.tmpdir=" + tmp));
        assertEquals(0, tmp.list().length); // nothing of it stays
        assertEquals("restored 100", run(without, "-Djava.library.path=" + lib));
        assertEquals("restored 100", run(without, "-D" + Library.PROPERTY + "=" + lib));
        String none = run(without);
        assertTrue(none, none.contains("dormouse.library.dir") && none.contains("java.library.path") && none.contains("linux-x86_64"));
        String absent = run(with, "-D" + Library.PROPERTY + "=/nowhere");
        assertTrue(absent, absent.contains("/nowhere/libdormouse.so"));
        String readOnly = run(with, "-Djava.io.tmpdir=/proc/nothing");
        assertTrue(readOnly, readOnly.contains("cannot be written"));
        assertTrue(new File(lib, "libdormouse.so").delete());
        String half = run(without, "-Djava.library.path=" + lib);
        assertTrue(half, half.contains("no dormouse in java.library.path"));
    }

    /** Two copies of the classes in one JVM, as plugins have them, share one library. */
    @Test
    public void twoClassLoaders() throws Exception {
        URL classes = new File(classes(true)).toURI().toURL();
        for (int i = 0; i < 2; i++) {
            ClassLoader own = new URLClassLoader(new URL[] {classes}, ClassLoader.getPlatformClassLoader());
            Class<?> toy = own.loadClass(Round.class.getName());
            java.lang.reflect.Method main = toy.getDeclaredMethod("main", String[].class);
            main.setAccessible(true);
            main.invoke(null, (Object) new String[] {new File(folder.getRoot(), "s" + i).getPath()});
            assertTrue(new File(folder.getRoot(), "s" + i + "/FORMAT").exists());
        }
    }
}
