package io.github.dormousekv.sample;

import io.github.dormousekv.Call;
import io.github.dormousekv.Llama;
import io.github.dormousekv.Prompt;
import io.github.dormousekv.Store;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.Locale;

/** The door of Java, for tests/capi/times: what llama_times.cpp says. Arguments: the store's folder, a model, the folder of the libraries, a file with the prompt's tokens, threads. */
final class Door {
    private final Engine engine;
    private final long address;

    private Door(Engine engine) throws ReflectiveOperationException {
        this.engine = engine;
        Field at = Engine.class.getDeclaredField("engine");
        at.setAccessible(true);
        address = at.getLong(engine);
        Field session = Engine.class.getDeclaredField("session");
        session.setAccessible(true);
        ((Llama) session.get(engine)).close(); // each turn has its own
    }

    private Object call(String name) throws ReflectiveOperationException {
        Method m = Engine.class.getDeclaredMethod(name, long.class);
        m.setAccessible(true);
        return m.invoke(engine, address);
    }

    private static double now() {
        return System.nanoTime() / 1e6;
    }

    private String turn(File dir, File model, String libllama, Prompt prompt) throws ReflectiveOperationException {
        call("clear");
        StringBuilder restores = new StringBuilder();
        double start = now();
        try (Store store = Store.open(dir)) {
            double opened = now();
            long context = (Long) call("context");
            try (Llama session = Llama.attach(store, libllama, context, model, new Llama.Options().memo(new File(dir + ".memo")), Call.UNLIMITED)) {
                double attached = now();
                int reused = session.restore(prompt, 0, Call.UNLIMITED).tokens;
                restores.append(now() - attached);
                session.prefill(prompt, reused, 0, Call.UNLIMITED);
                int best = (Integer) call("next");
                double first = now();
                for (int i = 0; i < 4; i++) {
                    call("clear");
                    double begin = now();
                    session.restore(prompt, 0, Call.UNLIMITED);
                    restores.append(",").append(now() - begin);
                }
                return String.format(Locale.ROOT, "{\"reused\":%d,\"best\":%d,\"open\":%f,\"attach\":%f,\"first\":%f,\"restore\":[%s]}", reused, best, opened - start, attached - opened, first - start,
                        restores);
            }
        }
    }

    public static void main(String[] args) throws Exception {
        System.load(System.getProperty("dormouse.engine"));
        File dir = new File(args[0]);
        File model = new File(args[1]);
        String libllama = new File(args[2]).listFiles((d, name) -> name.matches("libllama\\.v.*\\.so"))[0].getPath();
        int[] tokens = Arrays.stream(Files.readString(new File(args[3]).toPath()).split(" ")).mapToInt(Integer::parseInt).toArray();
        Door door;
        try (Store own = Store.open(new File(dir + ".java"))) {
            door = new Door(new Engine(own, model, libllama, args[2], tokens.length + 64, Integer.parseInt(args[4])));
        }
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        while (in.readLine() != null) {
            System.out.println(door.turn(dir, model, libllama, Prompt.of(tokens)));
        }
    }
}
