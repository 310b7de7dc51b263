// eval/sandbox/runner/frame.h: the Python text around a program.
#pragma once

namespace danlu::eval::runner {

inline constexpr int kTokenDescriptor = 3, kVerdictDescriptor = 4;

/// Executes kProgramFile in an empty namespace, as the module of OpenAI's and Hugging Face's
/// harnesses does, so that `__name__` is not "__main__". Behind the last statement it reads the
/// token and says it: a program that ends early, by sys.exit, os._exit or a signal, has not passed.
/// The program is in the same process and can do what the frame does: one written for this frame
/// can forge its verdict, as it can by returning an object that equals everything.
inline constexpr const char* kFrame = R"py(
def frame():
    from os import read, write
    from sys import stderr, stdout
    try:
        with open('/program.py', 'rb') as file:
            text = file.read().decode()
        exec(compile(text, '/program.py', 'exec'), {})
        said = read(3, 64)
    except BaseException as error:
        try:
            said = type(error).__name__ + ': ' + str(error)
        except BaseException:
            said = 'an exception without a text'
        said = ('failed: ' + said)[:1000].encode('utf-8', 'replace')
    for stream in stdout, stderr:
        try:
            stream.flush()
        except BaseException:
            pass
    write(4, said)
frame()
)py";

}  // namespace danlu::eval::runner
