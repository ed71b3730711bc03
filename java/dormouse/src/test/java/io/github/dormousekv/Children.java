package io.github.dormousekv;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** Other JVMs, with a main of the tests. */
final class Children {
    private Children() {}

    static Process start(List<String> options, String classPath, String main, String... args) throws IOException {
        List<String> command = new ArrayList<>(List.of(System.getProperty("java.home") + File.separator + "bin" + File.separator + "java", "-XX:TieredStopAtLevel=1", "-Xshare:auto"));
        command.addAll(options);
        command.addAll(List.of("-cp", classPath, main));
        command.addAll(List.of(args));
        return new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
    }

    static Process start(Class<?> main, String... args) throws IOException {
        return start(List.of(), System.getProperty("java.class.path"), main.getName(), args);
    }

    static BufferedReader lines(Process p) {
        return new BufferedReader(new InputStreamReader(p.getInputStream(), StandardCharsets.UTF_8));
    }
}
