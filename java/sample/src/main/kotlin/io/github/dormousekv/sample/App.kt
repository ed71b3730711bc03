package io.github.dormousekv.sample

import android.app.Application
import android.util.Log
import io.github.dormousekv.Store
import io.github.dormousekv.android.AppStore
import java.io.File
import java.util.concurrent.ExecutorService
import java.util.concurrent.Executors

/** Holds the store and the chat. What was said is in a file; its rows are in the store, and are computed again if they are gone. */
class App : Application() {
    /** Whose thread the model works on. */
    val worker: ExecutorService = Executors.newSingleThreadExecutor()
    private lateinit var kv: AppStore
    private var engine: Engine? = null // of the worker
    private var said = IntArray(0) // likewise; all tokens of the chat

    override fun onCreate() {
        super.onCreate()
        System.loadLibrary("engine")
        kv = AppStore(this, Store.Options().budget(2L shl 30), object : AppStore.Listener {
            override fun failed(err: RuntimeException) {
                Log.w("sample", "the store", err)
            }
        })
    }

    private fun chat() = File(noBackupFilesDir, "chat.txt")

    /** Takes up the chat where it was, also if Android has killed the process since. On the worker. */
    fun open(told: (String) -> Unit) {
        if (engine == null) {
            engine = Engine(kv.store(), File(filesDir, "model.gguf"))
            if (chat().exists()) said = chat().readText().split(' ').map { it.toInt() }.toIntArray()
        }
        told("${said.size} tokens so far\n")
    }

    /** One turn. On the worker. */
    fun say(text: String, told: (String) -> Unit) {
        val e = engine ?: return
        val question = e.tokens("<start_of_turn>user\n$text<end_of_turn>\n<start_of_turn>model\n")
        said += if (said.isEmpty()) question else question.drop(1).toIntArray() // one beginning of a text is enough
        val turn = e.read(said)
        told("[${turn.reused} of ${turn.tokens} tokens from the store]\n")
        said = e.write(said, 256, told)
        chat().writeText(said.joinToString(" "))
        e.save(said) // before Android may kill the process: a kill loses nothing that was saved
        told("\n")
    }
}
