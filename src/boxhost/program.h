/* program: boxhost's command line, from start to exit code. */
#pragma once

int boxhost_main(int argc, char **argv);
/* Closes every descriptor above 2 but one (-1: none), and drops environment, masks and limits that we were started
 * with.
 */
void program_cleanse(int keep);
