package androidx.test.platform.app;

import android.app.Instrumentation;
import android.os.Bundle;

public final class InstrumentationRegistry {
    private static Instrumentation instance;

    private InstrumentationRegistry() {}

    public static void registerInstance(Instrumentation given, Bundle arguments) {
        instance = given;
    }

    public static Instrumentation getInstrumentation() {
        return instance;
    }
}
