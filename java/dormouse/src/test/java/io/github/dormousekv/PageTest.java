package io.github.dormousekv;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** The Java of docs/java.md runs as it stands there, and so does the example. */
public class PageTest {
    private static final File ROOT = new File("../..");

    @Rule
    public TemporaryFolder folder = new TemporaryFolder();

    private String run(String file) throws Exception {
        String classes = Path.of(Store.class.getProtectionDomain().getCodeSource().getLocation().toURI()).toString();
        Process p = new ProcessBuilder(System.getProperty("java.home") + "/bin/java", "-Dfile.encoding=UTF-8", "-cp", classes, file).directory(folder.getRoot()).redirectErrorStream(true).start();
        String said = new String(p.getInputStream().readAllBytes(), java.nio.charset.StandardCharsets.UTF_8);
        assertEquals(said, 0, p.waitFor());
        return said;
    }

    private static String block(String page, String begin, String end) {
        Matcher m = Pattern.compile("(?ms)^" + Pattern.quote(begin) + "(.*?)^" + Pattern.quote(end)).matcher(page);
        assertTrue(begin, m.find());
        return m.group(1);
    }

    @Test
    public void thePage() throws Exception {
        String page = Files.readString(new File(ROOT, "docs/java.md").toPath());
        Files.writeString(folder.getRoot().toPath().resolve("App.java"), block(page, "```java\n", "```"));
        Matcher command = Pattern.compile("\\$ java -cp dormouse-.*\\.jar App.java\n").matcher(page);
        assertTrue(command.find());
        assertEquals(block(page, "```\n" + command.group(), "```"), run("App.java") + command.group() + run("App.java"));
    }

    @Test
    public void theExample() throws Exception {
        String said = run(new File(ROOT, "java/examples/TinyTransformer.java").getCanonicalPath());
        assertTrue(said, said.contains("restored 64 of 70 tokens") && said.contains("96 tokens, the same as without a kill"));
    }
}
