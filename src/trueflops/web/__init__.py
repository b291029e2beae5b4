"""The same answers in a browser: what `trueflops web` serves (the web extra).

forms.py    commands and their flags as forms    allowed.py  which of them may be asked here
asked.py    a question as JSON -> a command line worker.py   a process that answers them, walled in
pool.py     such processes, and who waits        answers.py  answers kept, and asked only once
searching.py  a search, with its progress        dropped.py  a file that was dropped on the page
exported.py files of an answer                   openapi.py  the API as data
words.py    the page's strings in a language     app.py      the routes
safety.py   what every reply says and may hold   serve.py    the server, and the browser
The page itself is static/. Nothing here computes: cli/web.py hands in the commands.
"""
