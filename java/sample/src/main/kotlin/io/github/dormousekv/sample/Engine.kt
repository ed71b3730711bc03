package io.github.dormousekv.sample

import io.github.dormousekv.Call
import io.github.dormousekv.Llama
import io.github.dormousekv.Prompt
import io.github.dormousekv.Store
import java.io.File
import java.nio.ByteBuffer
import java.nio.charset.CharacterCodingException
import java.nio.charset.StandardCharsets.UTF_8

/**
 * A model of llama.cpp whose context is attached to a store. It is used by one thread at a time, and closed before the store.
 *
 * @param libllama the library with llama.cpp's functions, which engine.cpp is linked with
 * @param backends the folder of ggml's backends; "" where they are linked in
 */
class Engine(store: Store, private val model: File, libllama: String = "libllama.so", backends: String = "", room: Int = 2048, threads: Int = 2) : AutoCloseable {
    private val engine: Long
    private val session: Llama

    init {
        start(backends.toByteArray())
        engine = load(model.path.toByteArray(), room, BATCH, threads)
        check(engine != 0L) { "$model cannot be loaded" }
        try {
            session = Llama.attach(store, libllama, context(engine), model, Llama.Options().memo(File(model.path + ".memo")).with("codec", "raw"), Call.UNLIMITED)
        } catch (err: RuntimeException) {
            free(engine)
            throw err
        }
    }

    /** What became of a turn: tokens of the prompt, and how many of them came from the store. */
    class Turn(val tokens: Int, val reused: Int)

    fun tokens(text: String): IntArray = tokenize(engine, text.toByteArray())

    /**
     * Brings a prompt into the context: what is stored of it from the store, the rest by computing. The last token is evaluated by itself, as it is after a restore of
     * all the others: sums are the same to the last bit where they are added up in the same batches.
     */
    fun read(tokens: IntArray): Turn {
        clear(engine)
        val prompt = Prompt.of(*tokens)
        val last = tokens.size - 1
        val reused = session.restore(prompt, 0, Call.UNLIMITED).tokens
        if (reused < last) {
            session.prefill(Prompt.of(*tokens.copyOf(last)), reused, 0, Call.UNLIMITED)
        }
        session.prefill(prompt, last, 0, Call.UNLIMITED)
        return Turn(tokens.size, reused)
    }

    /** Writes on, and tells the text as it comes. Gives all tokens. */
    fun write(prompt: IntArray, most: Int, told: (String) -> Unit): IntArray {
        var all = prompt
        var bytes = ByteArray(0) // a letter may be in several tokens
        while (all.size < prompt.size + most) {
            val token = next(engine)
            if (token < 0) break
            all += token
            session.prefill(Prompt.of(*all), all.size - 1, 0, Call.UNLIMITED)
            bytes += piece(engine, token)
            try {
                told(UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString())
                bytes = ByteArray(0)
            } catch (_: CharacterCodingException) {
                // the rest comes with the next token
            }
        }
        return all
    }

    /** Stores what the context holds of these tokens. */
    fun save(tokens: IntArray) {
        session.save(Prompt.of(*tokens), 0, Call.UNLIMITED)
    }

    override fun close() {
        session.close()
        free(engine)
    }

    private external fun start(backends: ByteArray)
    private external fun load(path: ByteArray, room: Int, batch: Int, threads: Int): Long
    private external fun free(engine: Long)
    private external fun context(engine: Long): Long
    private external fun clear(engine: Long)
    private external fun tokenize(engine: Long, text: ByteArray): IntArray
    private external fun next(engine: Long): Int
    private external fun piece(engine: Long, token: Int): ByteArray

    companion object {
        const val BATCH = 256
    }
}
