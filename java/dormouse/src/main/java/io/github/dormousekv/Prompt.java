package io.github.dormousekv;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;

/**
 * What a model is conditioned on: token ids, and what else. Two prompts share what they agree on. It does not change; the token ids are not copied
 * before a call, so whoever changes them changes the prompt.
 */
public final class Prompt {
    private final int[] tokens;
    private final String scope;
    private final int scopeStart;
    private final List<Span> spans;
    private final List<Adapter> adapters;

    /** Positions [start, start+length) stand for something other than their token ids: an image, a clip. hash is 16 bytes of its content. */
    public static final class Span {
        final int start;
        final int length;
        final byte[] hash;

        public Span(int start, int length, byte[] hash) {
            this.start = Library.atLeast0("a span's start", start);
            this.length = Library.atLeast0("a span's length", length);
            this.hash = of16(hash);
        }
    }

    /** A LoRA adapter, by 16 bytes of the hash of its file. */
    public static final class Adapter {
        final byte[] hash;
        final float scale;

        public Adapter(byte[] hash, float scale) {
            this.hash = of16(hash);
            this.scale = scale;
        }
    }

    private Prompt(int[] tokens, String scope, int scopeStart, List<Span> spans, List<Adapter> adapters) {
        this.tokens = tokens;
        this.scope = scope;
        this.scopeStart = scopeStart;
        this.spans = spans;
        this.adapters = adapters;
    }

    /** Tokens that everybody shares. */
    public static Prompt of(int... tokens) {
        return new Prompt(Library.given("tokens", tokens), "", 0, Collections.emptyList(), Collections.emptyList());
    }

    /**
     * The same tokens, and from start on the data is scope's: a user's, a conversation's. start counts tokens, not characters. What takes a prompt refuses
     * one whose start lies beyond its last token, or that has a start and an empty scope: the user's data would be everybody's.
     */
    public Prompt scope(String scope, int start) {
        Library.text("scope", scope);
        return new Prompt(tokens, scope, Library.atLeast0("scope's start", start), spans, adapters);
    }

    /**
     * The first n tokens, to be put or looked for: a beginning of what comes before the scope's start is everybody's, as it is in the whole. n lies inside
     * no span.
     */
    public Prompt prefix(int n) {
        if (n < 0 || n > tokens.length) {
            throw new IllegalArgumentException("a prefix of " + n + " tokens of a prompt of " + tokens.length);
        }
        List<Span> inside = new ArrayList<>();
        for (Span s : spans) {
            if (s.start + s.length <= n) {
                inside.add(s);
            }
        }
        int start = scopeStart > tokens.length ? scopeStart : Math.min(scopeStart, n); // a mistake stays one
        return new Prompt(Arrays.copyOf(tokens, n), scope, start, inside, adapters);
    }

    /** The same with one more span. They are added in the order of their positions. */
    public Prompt span(Span span) {
        List<Span> all = new ArrayList<>(spans);
        all.add(Library.given("span", span));
        return new Prompt(tokens, scope, scopeStart, all, adapters);
    }

    /** The same with one more adapter. They are added in the order in which they apply. */
    public Prompt adapter(Adapter adapter) {
        List<Adapter> all = new ArrayList<>(adapters);
        all.add(Library.given("adapter", adapter));
        return new Prompt(tokens, scope, scopeStart, spans, all);
    }

    /** The same with these adapters, and no others. */
    public Prompt adapters(List<Adapter> adapters) {
        Prompt out = new Prompt(tokens, scope, scopeStart, spans, Collections.emptyList());
        for (Adapter a : Library.given("adapters", adapters)) {
            out = out.adapter(a);
        }
        return out;
    }

    public int length() {
        return tokens.length;
    }

    private static byte[] of16(byte[] hash) {
        if (Library.given("hash", hash).length != 16) {
            throw new IllegalArgumentException("a hash has 16 bytes, not " + hash.length);
        }
        return hash.clone();
    }

    /** As convert.c takes it. */
    Object[] packed() {
        long[] numbers = new long[2 + 2 * spans.size()];
        byte[] hashes = new byte[16 * (spans.size() + adapters.size())];
        float[] scales = new float[adapters.size()];
        numbers[0] = tokens.length;
        numbers[1] = scopeStart;
        int at = 0;
        for (Span s : spans) {
            System.arraycopy(s.hash, 0, hashes, 16 * at, 16);
            numbers[2 + 2 * at] = s.start;
            numbers[3 + 2 * at++] = s.length;
        }
        for (int i = 0; i < scales.length; i++) {
            System.arraycopy(adapters.get(i).hash, 0, hashes, 16 * at++, 16);
            scales[i] = adapters.get(i).scale;
        }
        return new Object[] {tokens, Library.text("scope", scope), numbers, hashes, scales};
    }
}
