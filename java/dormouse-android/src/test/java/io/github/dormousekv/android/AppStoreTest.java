package io.github.dormousekv.android;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNotSame;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertSame;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import android.app.Activity;
import android.app.Application;
import android.content.ComponentCallbacks2;
import android.os.Looper;
import io.github.dormousekv.Call;
import io.github.dormousekv.Descriptor;
import io.github.dormousekv.DormouseException;
import io.github.dormousekv.DormouseException.Code;
import io.github.dormousekv.Match;
import io.github.dormousekv.Model;
import io.github.dormousekv.Prompt;
import io.github.dormousekv.Rows;
import io.github.dormousekv.Store;
import java.io.File;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.After;
import org.junit.Before;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.Robolectric;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.RuntimeEnvironment;
import org.robolectric.android.controller.ActivityController;
import org.robolectric.annotation.Config;

/** An app's life over the real library. What happened is in said. */
@RunWith(RobolectricTestRunner.class)
@Config(sdk = 35, manifest = Config.NONE)
public class AppStoreTest {
    static final int N = 100;
    static final int WIDTH = 32;
    static final Descriptor MODEL = Descriptor.of("toy", "toy", "0".repeat(31) + "1", "0".repeat(31) + "2").tensor(0, "K", "f16", WIDTH).tensor(0, "V", "f16", WIDTH).build();

    private final List<String> said = Collections.synchronizedList(new ArrayList<>());
    private Application app;
    private AppStore appStore;

    private final class Told implements AppStore.Listener {
        private void tell(String what) {
            assertNotSame(Looper.getMainLooper().getThread(), Thread.currentThread());
            assertEquals("dormouse", Thread.currentThread().getName());
            said.add(what);
        }

        private void tell(String what, Store store) {
            try {
                assertSame(store, appStore.store());
            } catch (InterruptedException err) {
                throw new AssertionError(err);
            }
            tell(what);
        }

        @Override
        public void beforeSleep(Store store) {
            put(store, 7); // the last moment for it
            tell("sleep", store);
        }

        @Override
        public void awake(Store store) {
            tell("awake", store);
        }

        @Override
        public void failed(RuntimeException err) {
            tell(err.toString());
        }
    }

    @Before
    public void launch() {
        app = RuntimeEnvironment.getApplication();
        AppStore.soon = Call.within(1, TimeUnit.HOURS); // what takes how long on this machine is not what is tested
        appStore = new AppStore(app, new Store.Options().codec("raw").budget(64 << 20), new Told());
    }

    @After
    public void end() throws InterruptedException {
        appStore.close();
    }

    private static Prompt prompt(int seed) {
        int[] tokens = new int[N];
        for (int i = 0; i < N; i++) {
            tokens[i] = 1000 * seed + i;
        }
        return Prompt.of(tokens);
    }

    private static List<ByteBuffer> memory(int value) {
        List<ByteBuffer> out = new ArrayList<>();
        for (int t = 0; t < 2; t++) {
            ByteBuffer b = ByteBuffer.allocateDirect(N * WIDTH * 2);
            for (int i = 0; i < b.capacity(); i++) {
                b.put(i, (byte) (value == 0 ? 0 : value + t));
            }
            out.add(b);
        }
        return out;
    }

    private static List<Rows> rows(List<ByteBuffer> memory) {
        return List.of(Rows.of(memory.get(0)), Rows.of(memory.get(1)));
    }

    static void put(Store store, int seed) {
        try (Model model = store.register(MODEL)) {
            assertEquals(N, model.put(prompt(seed), rows(memory(seed))).tokens);
        }
    }

    static int restored(Store store, int seed) {
        List<ByteBuffer> got = memory(0);
        try (Model model = store.register(MODEL); Match match = model.match(prompt(seed))) {
            int n = match.restore(rows(got)).tokens;
            if (n == N) {
                assertEquals(memory(seed), got);
            }
            return n;
        }
    }

    private static Code refused(Runnable call) {
        return assertThrows(DormouseException.class, call::run).code();
    }

    /** Nobody holds the store while it sleeps. */
    private void free() {
        try (Store other = Store.open(appStore.dir(), new Store.Options().codec("raw").budget(64 << 20))) {
            assertEquals(N, restored(other, 7));
        }
    }

    @Test
    public void stoppedAndStarted() throws InterruptedException {
        ActivityController<Activity> activity = Robolectric.buildActivity(Activity.class).setup();
        Store store = appStore.store();
        assertEquals(new File(app.getNoBackupFilesDir(), "dormouse"), appStore.dir());
        put(store, 1);
        assertSame(Code.LOCKED, refused(() -> Store.open(appStore.dir())));
        for (int i = 0; i < 3; i++) {
            activity.pause();
            appStore.store();
            assertEquals(N, restored(store, 1)); // a dialog before it is no reason to sleep
            activity.stop();
            assertSame(store, appStore.store());
            assertSame(Code.SUSPENDED, refused(() -> put(store, 2)));
            app.onTrimMemory(ComponentCallbacks2.TRIM_MEMORY_UI_HIDDEN); // as Android says after it
            app.onTrimMemory(ComponentCallbacks2.TRIM_MEMORY_BACKGROUND);
            appStore.store();
            free();
            activity.restart().resume();
            appStore.store();
            assertEquals(N, restored(store, 1));
            assertEquals(N, restored(store, 7));
        }
        assertEquals(List.of("awake", "sleep", "awake", "sleep", "awake", "sleep", "awake"), said);
    }

    @Test
    public void twoActivities() throws InterruptedException {
        ActivityController<Activity> first = Robolectric.buildActivity(Activity.class).setup();
        ActivityController<Activity> second = Robolectric.buildActivity(Activity.class).setup(); // starts before the first stops
        first.pause().stop();
        put(appStore.store(), 1);
        second.pause().stop().destroy();
        Store store = appStore.store();
        assertSame(Code.SUSPENDED, refused(() -> put(store, 2)));
        first.restart().resume();
        appStore.store();
        put(store, 2);
        assertEquals(List.of("awake", "sleep", "awake"), said);
    }

    @Test
    public void recreated() throws InterruptedException {
        ActivityController<Activity> activity = Robolectric.buildActivity(Activity.class).setup();
        Store store = appStore.store();
        put(store, 1);
        for (int i = 0; i < 3; i++) {
            Activity before = activity.get();
            activity.recreate();
            assertNotSame(before, activity.get());
            appStore.store();
            assertEquals(N, restored(store, 1));
        }
        assertEquals(List.of("awake"), said); // it never slept
        activity.pause().stop();
        appStore.store();
        free();
        assertEquals(List.of("awake", "sleep"), said);
    }

    @Test
    @SuppressWarnings("deprecation")
    public void trimmed() throws InterruptedException {
        ActivityController<Activity> activity = Robolectric.buildActivity(Activity.class).setup();
        Store store = appStore.store();
        int[] levels = {0, ComponentCallbacks2.TRIM_MEMORY_RUNNING_MODERATE, ComponentCallbacks2.TRIM_MEMORY_RUNNING_LOW, ComponentCallbacks2.TRIM_MEMORY_RUNNING_CRITICAL,
            ComponentCallbacks2.TRIM_MEMORY_UI_HIDDEN, ComponentCallbacks2.TRIM_MEMORY_BACKGROUND, ComponentCallbacks2.TRIM_MEMORY_MODERATE, ComponentCallbacks2.TRIM_MEMORY_COMPLETE, 100};
        Store.Pressure[] want = {null, Store.Pressure.MODERATE, Store.Pressure.LOW, Store.Pressure.CRITICAL, Store.Pressure.LOW, Store.Pressure.LOW, Store.Pressure.LOW, Store.Pressure.CRITICAL,
            Store.Pressure.CRITICAL};
        for (int i = 0; i < levels.length; i++) {
            assertSame("level " + levels[i], want[i], AppStore.pressure(levels[i]));
            put(store, 1);
            try (Model model = store.register(MODEL)) {
                put(store, 2);
                model.setRef("pin", prompt(2), new Model.RefOptions().pinned());
            }
            long before = store.stats().checkpoints;
            app.onTrimMemory(levels[i]);
            appStore.store();
            assertEquals("level " + levels[i], want[i] != null, store.stats().checkpoints > before);
            assertEquals("level " + levels[i], N, restored(store, 1));
            assertEquals(N, restored(store, 2));
        }
        put(store, 1);
        app.onLowMemory();
        appStore.store();
        assertEquals(N, restored(store, 1));
        activity.pause().stop();
        app.onTrimMemory(ComponentCallbacks2.TRIM_MEMORY_COMPLETE); // asleep: there is nothing to give, and nothing is thrown away
        appStore.store();
        free();
        assertEquals(List.of("awake", "sleep"), said);
    }

    @Test
    public void anotherHasIt() throws InterruptedException {
        ActivityController<Activity> activity = Robolectric.buildActivity(Activity.class).setup();
        Store store = appStore.store();
        activity.pause().stop();
        appStore.store();
        try (Store other = Store.open(appStore.dir())) {
            activity.restart().resume();
            appStore.store();
            assertTrue(said.toString(), said.get(2).contains("already open"));
            assertSame(Code.SUSPENDED, refused(() -> put(store, 1)));
        }
        activity.pause().stop().restart().resume(); // the next onStart tries again
        appStore.store();
        put(store, 1);
        assertEquals("awake", said.get(3));
    }

    @Test
    public void notOpened() throws InterruptedException {
        AppStore bad = new AppStore(app, new Store.Options().codec("q99"), new Told());
        assertSame(Code.ARGUMENT, refused(() -> {
            try {
                bad.store();
            } catch (InterruptedException err) {
                throw new AssertionError(err);
            }
        }));
        bad.close();
        bad.close();
        assertThrows(RejectedExecutionException.class, bad::store);
        appStore.store();
        assertFalse(said.isEmpty());
        assertNull(AppStore.pressure(-1));
    }
}
