package io.github.dormousekv;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/** What verify looked at, and the damage that it found: none, if all is well. */
public final class Verified {
    public final List<Damage> damage;
    public final List<String> notes;
    public final long files;
    public final long bytes;
    public final long records;

    /** What is wrong in one place. */
    public static final class Damage {
        public final String file;
        public final long offset;
        public final String what;
        /** "" where it is not known. */
        public final String expected;
        public final String found;

        Damage(Map<?, ?> d) {
            file = (String) d.get("file");
            offset = (Long) d.get("offset");
            what = (String) d.get("what");
            expected = d.containsKey("expected") ? (String) d.get("expected") : "";
            found = d.containsKey("found") ? (String) d.get("found") : "";
        }

        @Override
        public String toString() {
            return file + " at " + offset + ": " + what;
        }
    }

    Verified(Map<String, Object> report) {
        List<Damage> all = new ArrayList<>();
        for (Object d : (List<?>) report.get("damage")) {
            all.add(new Damage((Map<?, ?>) d));
        }
        List<String> said = new ArrayList<>();
        for (Object n : (List<?>) report.get("notes")) {
            said.add((String) n);
        }
        damage = Collections.unmodifiableList(all);
        notes = Collections.unmodifiableList(said);
        files = (Long) report.get("files");
        bytes = (Long) report.get("bytes");
        records = (Long) report.get("records");
    }
}
