package io.github.dormousekv;

import static io.github.dormousekv.Toy.given;
import static io.github.dormousekv.Toy.tokens;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;

import java.io.File;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** An argument that must not be null is named when it is. */
public class NullsTest {
    @Rule
    public TemporaryFolder folder = new TemporaryFolder();

    @Test
    public void anArgumentThatIsNullIsNamed() {
        int[] tokens = tokens(100, 1);
        Prompt p = Prompt.of(tokens);
        List<Rows> rows = given(Toy.rows(tokens));
        Call any = Call.UNLIMITED;
        File dir = new File(folder.getRoot(), "s");
        Map<Runnable, String> all = new LinkedHashMap<>();
        try (Store store = Toy.open(dir); Model model = store.register(Toy.MODEL)) {
            model.put(p, rows);
            try (Match match = model.match(p)) {
                all.put(() -> Store.open(null), "dir");
                all.put(() -> Store.open(dir, null), "options");
                all.put(() -> Store.open(dir, new Store.Options(), null), "call");
                all.put(() -> new Store.Options().codec(null), "codec");
                all.put(() -> new Store.Options().compression(null), "compression");
                all.put(() -> Store.hash(null), "data");
                all.put(() -> Store.hashFile(null), "file");
                all.put(() -> store.register(null), "descriptor");
                all.put(() -> store.sync(null), "call");
                all.put(() -> store.suspend(null), "call");
                all.put(() -> store.resume(null), "call");
                all.put(() -> store.verify(null), "call");
                all.put(() -> store.pressure(null), "level");
                all.put(() -> store.models(null), "call");
                all.put(() -> store.refs(null), "call");
                all.put(() -> store.checkpoint(null), "call");
                all.put(() -> store.shrink(0, null), "call");
                all.put(() -> store.compact(0, false, null), "call");
                all.put(() -> model.explain(null), "prompt");
                all.put(() -> model.explain(p, 3, null), "call");
                all.put(() -> model.notes(null), "call");
                all.put(() -> new Store.Options().eviction(null), "policy");
                all.put(() -> store.deleteRef(null), "name");
                all.put(() -> store.deleteScope(null), "scope");
                all.put(() -> model.probe(null), "prompt");
                all.put(() -> model.prefetch(null), "prompt");
                all.put(() -> model.match(null), "prompt");
                all.put(() -> model.match(p, 3, null), "call");
                all.put(() -> model.put(null, rows), "prompt");
                all.put(() -> model.put(p, null), "rows");
                all.put(() -> model.put(p, rows, null, any), "options");
                all.put(() -> model.put(p, rows, new Model.PutOptions(), null), "call");
                all.put(() -> model.setRef(null, p, new Model.RefOptions()), "name");
                all.put(() -> model.setRef("a", null, new Model.RefOptions()), "prefix");
                all.put(() -> model.setRef("a", p, null), "options");
                all.put(() -> model.delete(null), "prefix");
                all.put(() -> model.retire(null), "call");
                all.put(() -> match.restore(null), "rows");
                all.put(() -> match.restore(rows, null), "call");
                all.put(() -> match.extend(null, rows), "prompt");
                all.put(() -> match.extend(p, rows, null, any), "options");
                all.put(() -> Prompt.of((int[]) null), "tokens");
                all.put(() -> p.scope(null, 1), "scope");
                all.put(() -> p.span(null), "span");
                all.put(() -> p.adapter(null), "adapter");
                all.put(() -> p.adapters(null), "adapters");
                all.put(() -> new Prompt.Adapter(null, 1), "hash");
                all.put(() -> Rows.of(null), "memory");
                all.put(() -> Call.until(null), "cancel");
                all.put(() -> Descriptor.of(null, "", "", ""), "name");
                all.put(() -> Descriptor.of("", "", null, ""), "weights");
                all.put(() -> Descriptor.of("", "", "", "").tensor(0, null, "f16", 4), "role");
                all.put(() -> Descriptor.of("", "", "", "").rope(null, 0, 0, 0, "", ""), "type");
                all.put(() -> Descriptor.of("", "", "", "").stateFormat(null), "format");
                all.put(() -> Llama.attach(null, "", 1, null, new Llama.Options(), any), "store");
                all.put(() -> Llama.attach(store, null, 1, null, new Llama.Options(), any), "the library's name");
                all.put(() -> Llama.attach(store, "", 1, null, null, any), "options");
                all.put(() -> Llama.attach(store, "", 1, null, new Llama.Options(), null), "call");
                all.put(() -> new Llama.Options().memo(null), "file");
                all.put(() -> new Llama.Options().with("codec", null), "codec");
                all.put(() -> new Llama.Options().adapters(null), "adapters");
                all.put(() -> new Llama.Options().adapters(Collections.singletonList(null)), "adapter");
                all.forEach((call, name) -> assertEquals(name + " is null", assertThrows(name, NullPointerException.class, call::run).getMessage()));
                assertEquals(100, match.restore(rows, null, any).tokens); // no LayerReady
            }
        }
    }
}
