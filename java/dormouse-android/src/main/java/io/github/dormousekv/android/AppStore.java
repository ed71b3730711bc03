package io.github.dormousekv.android;

import android.app.Activity;
import android.app.Application;
import android.content.ComponentCallbacks2;
import android.content.res.Configuration;
import android.os.Bundle;
import io.github.dormousekv.Call;
import io.github.dormousekv.Store;
import java.io.File;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/**
 * The store of an app, in a folder that Android neither backs up nor purges. It sleeps ({@link Store#suspend}) while no activity is on the screen, and is told
 * when Android is short of memory. All of that is done by a thread of its own, one thing after the other; the main thread never waits.
 *
 * <p>An app makes one in Application.onCreate. Between onStop and onStart calls of the store fail with SUSPENDED. Open matches stay open over that.
 */
public final class AppStore implements AutoCloseable {
    /** What an app may want to know. All methods are called by the store's own thread. */
    public interface Listener {
        /** No activity is on the screen: the last moment for a put. Android may freeze the process some ten seconds later. */
        default void beforeSleep(Store store) {}

        /** The store is open, or awake again. */
        default void awake(Store store) {}

        /** Opening, sleeping, waking up or making room has failed. The next onStart or onStop tries again. */
        default void failed(RuntimeException err) {}
    }

    static Call soon = Call.within(5, TimeUnit.SECONDS); // a test on a slow machine has more

    private final Application app;
    private final File dir;
    private final Store.Options options;
    private final Listener listener;
    private final Callbacks callbacks = new Callbacks();
    private volatile Thread thread; // the worker's
    private final ExecutorService worker = Executors.newSingleThreadExecutor(task -> {
        Thread t = new Thread(task, "dormouse");
        t.setDaemon(true);
        thread = t;
        return t;
    });
    private final Set<Activity> started = Collections.newSetFromMap(new IdentityHashMap<>()); // on the screen; of the main thread
    private volatile boolean wanted = true; // to be awake
    private Store store; // this and asleep: of the worker
    private boolean asleep;

    /** Begins to open, or to make, the store. */
    public AppStore(Application app, Store.Options options, Listener listener) {
        this.app = app;
        this.options = options;
        this.listener = listener;
        dir = new File(app.getNoBackupFilesDir(), "dormouse");
        app.registerActivityLifecycleCallbacks(callbacks);
        app.registerComponentCallbacks(callbacks);
        worker.execute(this::settle);
    }

    public File dir() {
        return dir;
    }

    /** Waits until the store is open, and until what Android has said so far is done; not for the main thread. In a method of the listener it is the store that the method was given. Throws what opening it threw, and RejectedExecutionException after close. */
    public Store store() throws InterruptedException {
        if (Thread.currentThread() == thread) { // nobody else would do what this waits for
            return store == null ? open() : store;
        }
        Future<Store> now = worker.submit(() -> store == null ? open() : store);
        try {
            return now.get();
        } catch (ExecutionException err) {
            if (err.getCause() instanceof RuntimeException) {
                throw (RuntimeException) err.getCause();
            }
            throw new CancellationException(err.getCause().toString());
        }
    }

    /** Closes the store when what was said before is done. An app that lives as long as its process has no need to. */
    @Override
    public void close() {
        if (worker.isShutdown()) {
            return;
        }
        app.unregisterActivityLifecycleCallbacks(callbacks);
        app.unregisterComponentCallbacks(callbacks);
        worker.execute(() -> attempt(() -> {
            if (store != null) {
                store.close();
            }
        }));
        worker.shutdown();
    }

    private Store open() {
        store = Store.open(dir, options);
        listener.awake(store);
        return store;
    }

    private void attempt(Runnable what) {
        try {
            what.run();
        } catch (RuntimeException err) {
            listener.failed(err);
        }
    }

    /** Brings the store to where it is wanted. A quick stop and start are no work at all. */
    private void settle() {
        attempt(() -> {
            if (wanted && store == null) {
                open();
            } else if (wanted && asleep) {
                store.resume();
                asleep = false;
                listener.awake(store);
            } else if (!wanted && store != null && !asleep) {
                attempt(() -> listener.beforeSleep(store));
                attempt(() -> store.pressure(Store.Pressure.LOW, soon));
                asleep = true; // it is, even if suspend fails
                store.suspend();
            }
        });
    }

    /** What a level of onTrimMemory asks for, or null. Android says that there may be more levels between these. */
    @SuppressWarnings("deprecation") // all but two are not delivered by Android 14 and later
    static Store.Pressure pressure(int level) {
        if (level >= ComponentCallbacks2.TRIM_MEMORY_COMPLETE) {
            return Store.Pressure.CRITICAL;
        } else if (level >= ComponentCallbacks2.TRIM_MEMORY_UI_HIDDEN) {
            return Store.Pressure.LOW;
        } else if (level >= ComponentCallbacks2.TRIM_MEMORY_RUNNING_CRITICAL) {
            return Store.Pressure.CRITICAL;
        } else if (level >= ComponentCallbacks2.TRIM_MEMORY_RUNNING_LOW) {
            return Store.Pressure.LOW;
        }
        return level >= ComponentCallbacks2.TRIM_MEMORY_RUNNING_MODERATE ? Store.Pressure.MODERATE : null;
    }

    private void trim(Store.Pressure level) {
        if (level != null) {
            worker.execute(() -> attempt(() -> {
                if (store != null && !asleep) { // a store that sleeps holds nothing
                    store.pressure(level, soon);
                }
            }));
        }
    }

    private void want(boolean now) {
        wanted = now;
        worker.execute(this::settle);
    }

    private final class Callbacks implements ComponentCallbacks2, Application.ActivityLifecycleCallbacks {
        @Override
        public void onTrimMemory(int level) {
            trim(pressure(level));
        }

        @Override
        public void onLowMemory() {
            trim(Store.Pressure.CRITICAL);
        }

        @Override
        public void onConfigurationChanged(Configuration now) {}

        @Override
        public void onActivityStarted(Activity a) {
            started.add(a);
            want(true);
        }

        @Override
        public void onActivityStopped(Activity a) {
            started.remove(a);
            if (started.isEmpty() && !a.isChangingConfigurations()) { // else the screen was turned: the same activity comes back at once
                want(false);
            }
        }

        @Override
        public void onActivityCreated(Activity a, Bundle state) {}

        @Override
        public void onActivityResumed(Activity a) {}

        @Override
        public void onActivityPaused(Activity a) {}

        @Override
        public void onActivitySaveInstanceState(Activity a, Bundle state) {}

        @Override
        public void onActivityDestroyed(Activity a) {}
    }
}
