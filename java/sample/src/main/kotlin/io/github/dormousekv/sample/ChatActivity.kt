package io.github.dormousekv.sample

import android.app.Activity
import android.os.Bundle
import android.widget.Button
import android.widget.EditText
import android.widget.LinearLayout
import android.widget.ScrollView
import android.widget.TextView

/** A text, a line to write in, and a button. Turning the screen makes it anew; the chat goes on in App. */
class ChatActivity : Activity() {
    override fun onCreate(state: Bundle?) {
        super.onCreate(state)
        val app = application as App
        val text = TextView(this)
        val line = EditText(this)
        val send = Button(this).apply { setText("Send") }
        setContentView(LinearLayout(this).apply {
            orientation = LinearLayout.VERTICAL
            addView(ScrollView(context).apply { addView(text) }, LinearLayout.LayoutParams(LinearLayout.LayoutParams.MATCH_PARENT, 0, 1f))
            addView(line)
            addView(send)
        })
        val tell = { said: String -> runOnUiThread { text.append(said) } }
        fun work(what: () -> Unit) = app.worker.execute {
            try {
                what()
            } catch (err: Exception) { // the store sleeps, say, because the screen went dark in the midst of an answer: the next turn computes what was not saved
                tell("\n${err.message}\n")
            }
        }
        work { app.open(tell) }
        send.setOnClickListener {
            val said = line.text.toString()
            line.setText("")
            work { app.say(said, tell) }
        }
    }
}
