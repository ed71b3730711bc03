package androidx.test.runner.lifecycle;

public final class ActivityLifecycleMonitorRegistry {
    private ActivityLifecycleMonitorRegistry() {}

    public static void registerInstance(ActivityLifecycleMonitor given) {}
}
