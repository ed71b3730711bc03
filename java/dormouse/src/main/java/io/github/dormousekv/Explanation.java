package io.github.dormousekv;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/** How much of a prompt would be reused, and what stands in the way of more. toString says it in a few lines. */
public final class Explanation {
    /** Tokens of the prompt. */
    public final int prompt;
    /** Those that would be reused. */
    public final int tokens;
    /** Why not more: "diverged", "nothing stored", … */
    public final String reason;
    /** The position that the reason is about. */
    public final int reasonAt;
    /** What is stored along the prompt. */
    public final List<Block> blocks;
    /** Other models that have more of the prompt. */
    public final List<Elsewhere> elsewhere;
    private final String text;

    /** A block of the matched prefix: the tokens from start on, before end. */
    public static final class Block {
        public final String key;
        public final int start;
        public final int end;
        /** It is no scope's. */
        public final boolean shared;
        /** "stored", "missing", "damaged", … for each group of the model. */
        public final List<String> groups;

        Block(Map<?, ?> b) {
            key = (String) b.get("key");
            start = ((Long) b.get("start")).intValue();
            end = ((Long) b.get("end")).intValue();
            shared = (Boolean) b.get("shared");
            List<String> all = new ArrayList<>();
            ((List<?>) b.get("groups")).forEach(g -> all.add((String) g));
            groups = Collections.unmodifiableList(all);
        }
    }

    /** Another model that has more of the prompt. */
    public static final class Elsewhere {
        public final String name;
        public final String fingerprint;
        public final int tokens;
        /** Fields in which the descriptors differ. */
        public final List<Difference> differs;
        /** Why its descriptor cannot be read; "" if it can. */
        public final String error;

        Elsewhere(Map<?, ?> m) {
            name = (String) m.get("name");
            fingerprint = (String) m.get("fingerprint");
            tokens = ((Long) m.get("tokens")).intValue();
            error = (String) m.get("error");
            List<Difference> all = new ArrayList<>();
            Json.objects(m.get("differs")).forEach(d -> all.add(new Difference(d)));
            differs = Collections.unmodifiableList(all);
        }
    }

    /** A field of the descriptor: what the other model has, and what this one has. */
    public static final class Difference {
        public final String field;
        public final String have;
        public final String want;

        Difference(Map<?, ?> d) {
            field = (String) d.get("field");
            have = (String) d.get("have");
            want = (String) d.get("want");
        }
    }

    Explanation(Map<String, Object> x) {
        text = (String) x.get("text");
        prompt = ((Long) x.get("prompt")).intValue();
        tokens = ((Long) x.get("tokens")).intValue();
        reason = (String) x.get("reason");
        reasonAt = ((Long) x.get("reason_at")).intValue();
        List<Block> along = new ArrayList<>();
        Json.objects(x.get("blocks")).forEach(b -> along.add(new Block(b)));
        blocks = Collections.unmodifiableList(along);
        List<Elsewhere> others = new ArrayList<>();
        Json.objects(x.get("elsewhere")).forEach(m -> others.add(new Elsewhere(m)));
        elsewhere = Collections.unmodifiableList(others);
    }

    @Override
    public String toString() {
        return text;
    }
}
