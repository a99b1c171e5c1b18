"""Models on disk. Takes what the user wrote after ``serve``, gives a folder in Hugging Face form.

``resolve`` is the way in, ``ModelFolder`` what comes out; frontend and engine read nothing else.
"""
